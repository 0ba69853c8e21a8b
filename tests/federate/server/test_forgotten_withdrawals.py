"""What a store forgot that was withdrawn does not come back."""

import shutil

import numpy as np
import pytest

from fedcommons.federate.site.own_data import SiteData
from tests.federate.tiny import (
    BETA,
    P,
    answers_at,
    mean_estimate,
    outcomes,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")


def test_a_store_that_forgot_a_withdrawal_says_so(tiny, caplog):
    tiny.forget("b", 0, 1)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 3)
        (missing,) = [s["outcome"] for s in notes[-1]["sites"] if s["site"] == "b"]
        assert missing == "StoreIsOlder"
        assert "its operator must withdraw those examples again" in caplog.text
    tiny.close()
    tiny.withdraw("b", 0, 1)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 4)
    assert set(outcomes(notes[-1]).values()) == {"answered"}


def test_a_store_that_forgot_a_withdrawal_brings_nothing_back_in_a_new_exchange(tiny):
    """Also if a new exchange is the first that it hears of: the server's commit tells."""
    tiny.forget("b", 0, 1)
    for _ in range(2):  # the commit that follows knows nothing of b
        with tiny.shared(tiny.grid(), reshare=True) as federation:
            assert [member.site for member in federation.commit.members] == ["a", "c", "d"]
        tiny.close()
    tiny.withdraw("b", 0, 1)
    grid = tiny.grid()
    with tiny.shared(grid, reshare=True) as federation:
        assert [m.n_examples for m in federation.commit.members] == [4, 6 - 2, 5, 7]


def test_a_store_from_before_the_exchange_brings_nothing_back(tiny, tmp_path, caplog):
    tiny.run(1)
    tiny.close()
    shutil.copytree(tiny.folder / "b", tmp_path / "backup")
    tiny.data["b"] = SiteData.from_arrays(
        tiny.data["b"].x.take(np.arange(6)) + 1, tiny.data["b"].y, tiny.data["b"].shareable
    )
    tiny.run(1, sharing={"reshare": True})
    tiny.withdraw("b", 0)
    tiny.run(2)
    tiny.close()
    shutil.rmtree(tiny.folder / "b")
    shutil.copytree(tmp_path / "backup", tiny.folder / "b")
    with tiny.shared(tiny.grid(), reshare=True) as federation:
        assert [member.site for member in federation.commit.members] == ["a", "c", "d"]
    assert "put a newer copy of it in place" in caplog.text


def test_data_written_anew_in_another_type_bring_nothing_back(tiny, caplog):
    for name, data in tiny.data.items():
        whole = np.rint(data.x.take(np.arange(data.n_examples)) * 20)
        tiny.data[name] = SiteData.from_arrays(whole.astype(np.int16), data.y, data.shareable)
    tiny.run(1)
    tiny.withdraw("b", 0, 3)
    tiny.run(2)
    for name, data in tiny.data.items():
        x = data.x.take(np.arange(data.n_examples)).astype(np.float32)
        tiny.data[name] = SiteData.from_arrays(x, data.y, data.shareable)
    grid = tiny.grid()
    with tiny.shared(grid, reshare=True) as federation:
        assert [m.n_examples for m in federation.commit.members] == [4, 6 - 2, 5, 7]
        check_agreement_after_number(tiny, federation, grid)
    assert "are not in the data" not in caplog.text


def check_agreement_after_number(tiny, federation, grid):
    """What was withdrawn has no number in a new exchange, and no part in the sum."""
    answers, answered = answers_at(federation, grid, BETA)
    assert answered.all()
    full = tiny.full_gradient({"b": {0, 3}}, BETA).ravel()
    np.testing.assert_allclose(mean_estimate(answers, P), full, rtol=0, atol=1e-8)


def test_withdrawn_contents_that_are_not_found_in_new_data_are_pointed_out(tiny, caplog):
    tiny.run(1)
    tiny.withdraw("b", 0, 3)
    data = tiny.data["b"]
    tiny.data["b"] = SiteData.from_arrays(data.x.take(np.arange(6)) / 2, data.y, data.shareable)
    tiny.run(1, sharing={"reshare": True})
    assert "2 of the 2 examples that were withdrawn are not in the data" in caplog.text
