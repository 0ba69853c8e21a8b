"""A slow answer in a site's store."""

import numpy as np
import pytest

from fedcommons.errors import StoreError
from fedcommons.federate.site import kept
from fedcommons.federate.site.store import Store

ABOUT = {"digest": b"12", "round": 3, "coverage": 1.5}
ANSWER = {"beta": np.arange(40.0).reshape(5, 8), "n": np.array(3, np.int32)}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "PART", 100)  # several rows
    found = Store(tmp_path / "store", create=True)
    found.kept.keep("one", 7, ABOUT, ANSWER)
    yield found
    found.close()


def test_what_is_found_is_what_was_kept(store):
    about, answer = store.kept.find("one", 7)
    assert about == ABOUT
    assert {name: a.tolist() for name, a in answer.items()} == {
        name: a.tolist() for name, a in ANSWER.items()
    }
    assert store.kept.find("one", 8) is None
    assert store.kept.find("two", 7) is None


def test_the_last_one_is_kept_until_its_own_training_has_it(store):
    store.kept.keep("one", 9, ABOUT, {"beta": np.zeros(2)})
    assert store.kept.find("one", 7) is None
    store.kept.drop("two")
    store.kept.drop("")
    assert store.kept.find("one", 9) is not None
    store.kept.drop("one")
    assert store.kept.find("one", 9) is None


def test_damage_is_noticed(store):
    store.database.run("DELETE FROM kept WHERE part = 1")
    with pytest.raises(StoreError, match="table kept"):
        store.kept.find("one", 7)
    store.kept.keep("one", 7, ABOUT, ANSWER)
    store.database.run("UPDATE kept SET content = ? WHERE part = 2", (b"x",))
    with pytest.raises(StoreError, match="table kept"):
        store.kept.find("one", 7)
