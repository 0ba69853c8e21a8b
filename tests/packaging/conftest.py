"""The wheel, built once for each process that tests it."""

from pathlib import Path

import pytest

from tests.packaging.environments import build_wheel, need_index


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    need_index(folder)
    return build_wheel(folder)
