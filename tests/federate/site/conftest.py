"""A store, an epoch of three sites, and a loader of data files."""

import pytest

from fedcommons.federate.site.data_files import load_site_data
from fedcommons.federate.site.store import Store
from tests.federate.conftest import epoch_of


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store", create=True)
    yield store
    store.close()


@pytest.fixture
def epoch(three):
    return epoch_of(three, copies=1)


@pytest.fixture
def load(tmp_path):
    return lambda path, **options: load_site_data(path, spool=tmp_path / "spool", **options)
