"""Rows keep their numbers, and only what was numbered and may leave is sent."""

from dataclasses import replace

import numpy as np
import pytest

from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.records import Epoch
from fedcommons.federate.protocol.refusals import (
    DataChanged,
)
from fedcommons.federate.site.numbering import Shareable
from fedcommons.federate.site.own_data import SiteData
from tests.federate.conftest import FEDERATION, drawn, epoch_of, example_data, sent_by
from tests.federate.site.envelopes import (
    A,
    B,
)


def test_data_that_changed_are_not_sent(make_site):
    x = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    site = make_site("a", SiteData.from_arrays(x, [0, 1, 2, 0], [True, True, False, False]))
    sites = [site, *(make_site(n, SiteData.from_arrays(x, [0] * 4, [True] * 4)) for n in "bc")]
    epoch = epoch_of(sites)
    assert sent_by(site, epoch)
    x[0], x[2] = x[2].copy(), x[0].copy()  # a private example where a shareable one was
    with pytest.raises(DataChanged):
        sent_by(site, epoch)


def test_data_that_changed_since_the_offer_are_refused(make_site, epoch):
    other = make_site("a", example_data(99))
    with pytest.raises(DataChanged):
        other.exchange.send(epoch.record, [B], 0)
    marks = make_site("a", replace(example_data(ord("a")), shareable=np.ones(12, np.bool_)))
    with pytest.raises(DataChanged):
        marks.exchange.send(epoch.record, [B], 0)
    same = make_site("a")
    assert sent_by(same, epoch)


def test_an_epoch_keeps_its_numbering_until_another_is_committed(three, epoch):
    before = three[A].store.manifests.newest().digest
    three[A].store.withdrawals.withdraw(np.array([1]))
    later = epoch_of(three, number=2)  # numbers the rows anew
    assert three[A].store.manifests.newest().digest != before
    assert three[A].exchange.receive(epoch.record, []) == ([], {})
    three[A].apply_commit(Commit.of(later, ()).record)
    assert three[A].store.manifests.find(before) is None


def test_an_epoch_over_rows_that_were_never_numbered_is_refused(make_site, three):
    stranger = make_site("a", example_data(99))
    offers = [
        site.exchange.offer(FEDERATION, node_id=1, run_id=2, with_key=True) for site in three[B:]
    ]
    content = replace(
        stranger.exchange.offer(FEDERATION, node_id=1, run_id=2, with_key=True).checked(),
        manifest="0" * 64,
    )
    mine = content.signed(stranger.store.identity)
    epoch = drawn([stranger, *three[B:]], Epoch(FEDERATION, 3, 1, (mine, *offers)))
    with pytest.raises(DataChanged):
        stranger.exchange.send(epoch.record, [B], 0)


def test_a_commit_over_other_data_is_refused(make_site, committed):
    _, _, commit = committed
    other = make_site("a", example_data(99))
    with pytest.raises(DataChanged):
        other.apply_commit(commit.record)  # even though the site is under it
    other.exchange.offer(FEDERATION, node_id=1, run_id=2, with_key=True)  # numbers the new rows
    with pytest.raises(DataChanged):
        other.apply_commit(commit.record)


def test_data_that_are_as_they_were_again_are_offered_again(make_site):
    sizes = [
        make_site("a", example_data(seed, n))
        .exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=True)
        .checked()
        .n_examples
        for seed, n in ((1, 6), (2, 4), (1, 6))
    ]
    assert sizes == [6, 4, 6]


@pytest.mark.usefixtures("epoch")
def test_packing_sees_shareable_examples_only(three):
    """The manifest cannot make a private example leave."""
    manifest = three[A].store.manifests.newest()
    everything = replace(manifest, shareable=np.ones(12, np.bool_))
    with pytest.raises(DataChanged):
        Shareable(three[A].data, everything, b"key")
    assert len(Shareable(three[A].data, manifest, b"key")) == 6
