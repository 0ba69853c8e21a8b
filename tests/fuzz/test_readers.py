"""Whatever became of a file, it is read, or refused by an error of fedcommons that names it.

`make fuzz` tries many more cases: FUZZ_CASES for each reader, beginning with FUZZ_SEED.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedcommons.errors import FedcommonsError
from tests.fuzz.readers import READERS, Reader

CASES = int(os.environ.get("FUZZ_CASES", "200"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_good_file_is_read(reader: Reader, tmp_path: Path) -> None:
    path = tmp_path / reader.name
    reader.write(path)
    reader.read(path)


@pytest.mark.filterwarnings("ignore")  # of NumPy, about what is refused afterwards
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_damaged_file_is_read_or_refused_by_its_name(reader: Reader, tmp_path: Path) -> None:
    source = tmp_path / reader.name
    reader.write(source)
    good = source.read_bytes()
    refusals = []
    for seed in range(SEED, SEED + CASES):
        rng = np.random.default_rng(seed)
        damage = reader.mutations[rng.integers(len(reader.mutations))]
        folder = tmp_path / "case"
        folder.mkdir()
        (folder / reader.name).write_bytes(damage(good, rng))
        if (said := refusal(reader, folder, f"seed {seed}, {damage.__name__}")) is not None:
            refusals.append(said)
        shutil.rmtree(folder)
    assert refusals
    names = (str(tmp_path / "case"), reader.name)
    assert not [said for said in refusals if not any(name in said for name in names)]


def refusal(reader: Reader, folder: Path, case: str) -> str | None:
    """What is said of a file that is refused; None if it is read."""
    try:
        reader.read(folder / reader.name)
    except FedcommonsError as refused:
        return str(refused)
    except BaseException as error:
        error.add_note(f"{reader.name}, {case}")
        raise
    return None
