"""The batches and loaders that a training function is given."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.protocol.refusals import ExamplesIgnored, SeveralStepsRefused
from fedcommons.federate.transport import coded_answer
from fedcommons.federate.transport.torch_loader import data_loader, loader_like
from fedcommons.federate.transport.weighted_examples import WeightedExamples
from tests.federate.tiny import outcomes, train, trained_model

pytestmark = pytest.mark.usefixtures("impatient")

SHARES = np.array([1, 1, 1, 0.25, 0.25, 0.5, 0.0])


def held(shares=SHARES, **options):
    n = len(shares)
    return WeightedExamples(
        np.arange(n, dtype=np.float32)[:, None],
        np.arange(n),
        np.asarray(shares, float),
        rng=np.random.default_rng(0),
        **options,
    )


def examples_of(batches):
    return [y.tolist() for _, y, *_ in batches]


def taken_by(batches):
    return [row for rows in examples_of(batches) for row in rows]


# Batches


def test_batches_have_a_length_and_come_again_in_another_order():
    batches = held(local_steps=3, batch_size=2).batches()
    first, second = examples_of(batches), examples_of(batches)
    assert len(batches) == len(first) == len(second) == 3
    assert first != second


def test_an_app_may_choose_batches_and_epochs_itself():
    asked = held(local_steps=5, batch_size=3)
    assert [len(asked.batches(*own)) for own in ((None, None), (2, None), (2, 3), (None, 2))] == [
        5,  # as the server asks for
        4,  # one epoch of seven examples
        12,
        6,
    ]
    assert len(held().batches(epochs=2)) == 2  # on all examples
    assert {len(y) for _, y, _ in asked.batches(2, 3)} == {2}


def test_the_weights_of_a_batch_are_one_on_average():
    (_, _, weight), *_ = held().batches()
    assert weight.mean() == 1
    np.testing.assert_allclose(weight, SHARES * 7 / 4)


@pytest.mark.parametrize("own", [dict(epochs=2), dict(batch_size=2)])
def test_several_steps_are_refused_where_weights_may_be_negative(own):
    with pytest.raises(
        SeveralStepsRefused, match="local steps must be 1 with work that fits, and with a code"
    ):
        held(one_step=True).batches(**own)
    assert len(held(one_step=True).batches()) == 1


# In proportion to the shares


def test_a_draw_takes_each_example_in_proportion_to_its_share():
    """Exactly: over all starting points of the draw, for each order of the examples."""
    shares = np.array([1, 1, 0.25, 0.5])  # W = 2.75, k = 3

    class Fixed:
        def __init__(self, order, at):
            self.order, self.at = list(order), at

        def permutation(self, n):
            return np.array(self.order[:n]) if isinstance(n, int) else n

        def random(self):
            return self.at

    orders, grid = list(itertools.permutations(range(4))), (np.arange(110) + 0.5) / 110
    taken = np.zeros(4)
    for order in orders:
        for at in grid:  # shares are multiples of 1/110 of the way between two points
            draw = WeightedExamples(shares[:, None], shares, shares, rng=Fixed(order, at))
            rows = draw.in_proportion()
            assert len(rows) == draw.n_in_proportion == 3
            taken += np.bincount(rows, minlength=4)
    np.testing.assert_allclose(taken / (len(orders) * len(grid)), shares * 3 / 2.75, rtol=1e-9)


def test_without_copies_a_draw_is_an_epoch_of_all_examples():
    for n in (1, 7, 1000):
        draw = held(np.ones(n))
        first, second = draw.in_proportion(), draw.in_proportion()
        assert sorted(first) == sorted(second) == list(range(n))
        assert n == 1 or first.tolist() != second.tolist()


# torch


def test_a_dataloader_brings_weights_and_shuffles_every_epoch():
    loader = data_loader(held(), batch_size=3, shuffle=True, weights=True)
    epochs = [list(loader) for _ in range(2)]
    assert len(loader) == 3
    for batches in epochs:
        assert sorted(taken_by(batches)) == list(range(7))
        for x, y, weight in batches:
            assert x.dtype == weight.dtype == torch.float32
            np.testing.assert_allclose(weight.numpy(), SHARES[y.numpy()] * 7 / 4, rtol=1e-6)
    assert examples_of(epochs[0]) != examples_of(epochs[1])
    in_order = data_loader(held(), batch_size=3, shuffle=False, weights=True)
    assert examples_of(in_order) == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_dataloader_without_weights_draws_in_proportion():
    loader = data_loader(held(), batch_size=3, shuffle=True, weights=False)
    assert len(loader) == 2
    seen = [taken_by(loader) for _ in range(200)]
    assert {len(rows) for rows in seen} == {4}
    assert len({tuple(sorted(rows)) for rows in seen}) > 1
    assert all({0, 1, 2} <= set(rows) for rows in seen)
    assert not any(6 in rows for rows in seen)


def test_a_dataloader_takes_the_options_of_torch():
    loader = data_loader(held(), batch_size=3, shuffle=True, weights=True, drop_last=True)
    assert len(loader) == len(list(loader)) == 2


def test_a_dataloader_is_refused_where_weights_may_be_negative():
    with pytest.raises(SeveralStepsRefused, match="weights must be True with this code"):
        data_loader(held(one_step=True), batch_size=7, shuffle=True, weights=False)
    with pytest.raises(SeveralStepsRefused, match="local steps must be 1"):
        data_loader(held(one_step=True), batch_size=3, shuffle=True, weights=True)
    assert len(data_loader(held(one_step=True), batch_size=7, shuffle=True, weights=True)) == 1


def test_a_draw_is_always_shuffled():
    with pytest.raises(ArgumentError, match="shuffle must be True without weights"):
        data_loader(held(), batch_size=3, shuffle=False, weights=False)


# The app's own loader, with what the site holds


def own_loader(label=lambda y: y, n=7, **options):
    """A loader of the app's own: three examples of other values than the site's."""
    own = TensorDataset(torch.zeros(n, 1), label(torch.zeros(n, dtype=torch.int64)))
    return DataLoader(own, **{"batch_size": 3, "shuffle": True, **options})


def test_the_apps_loader_brings_what_the_site_holds_in_proportion():
    loader = loader_like(held(), own_loader())
    assert len(loader) == 2
    assert [len(batch) for batch in loader] == [2, 2]
    seen = [taken_by(loader) for _ in range(50)]
    assert {len(rows) for rows in seen} == {4}
    assert all({0, 1, 2} <= set(rows) for rows in seen)
    assert len({tuple(rows) for rows in seen}) > 1
    assert len(list(loader_like(held(np.ones(7)), own_loader()))) == 3


def test_a_batch_of_one_comes_only_where_the_apps_own_loader_has_one():
    assert held().n_in_proportion == 4
    for n, sizes in ((6, [3]), (7, [3, 1])):
        loader = loader_like(held(), own_loader(n=n))
        assert [len(y) for _, y in loader] == sizes
        assert len(loader) == len(sizes)
    loader = loader_like(held(), own_loader(n=6))
    counts = np.bincount(
        [k for _ in range(2000) for k in taken_by(loader)], minlength=7
    )  # each in proportion to its share still: 5 standard errors of at most sqrt(.25 / 2000)
    expected = 3 * held().shares / held().shares.sum()
    assert np.abs(counts / 2000 - expected).max() < 5 * np.sqrt(0.25 / 2000)


@pytest.mark.parametrize("shuffle", [True, False])
def test_while_nothing_is_shared_batches_are_those_of_the_apps_own_loader(shuffle):
    alone = held(np.ones(7))
    dataset = TensorDataset(torch.from_numpy(alone.x), torch.from_numpy(alone.y))
    own = DataLoader(dataset, batch_size=3, shuffle=shuffle)
    seen = []
    for loader in (own, loader_like(alone, own)):
        torch.manual_seed(5)
        seen.append([examples_of(loader) for _ in range(2)])
    assert seen[0] == seen[1]
    assert (seen[0][0] != seen[0][1]) is shuffle


def test_labels_come_as_the_app_has_them():
    loader = loader_like(held(), own_loader(lambda y: y.float().view(-1, 1)))
    for _, y in loader:
        assert (y.dtype, y.shape[1:]) == (torch.float32, (1,))
        assert set(y.flatten().tolist()) <= set(range(7))


def test_examples_come_by_the_names_that_the_app_has():
    own = [{"img": torch.zeros(1), "label": 0}] * 3
    for batch in loader_like(held(), DataLoader(own, batch_size=2)):
        assert list(batch) == ["img", "label"]
        assert batch["img"][:, 0].tolist() == batch["label"].tolist()
        assert batch["label"].dtype == torch.int64


def test_the_apps_loader_makes_batches_in_its_own_way():
    def collate(examples):
        return len(examples), torch.stack([x for x, _ in examples])

    loader = loader_like(held(np.ones(7)), own_loader(collate_fn=collate, drop_last=True))
    assert [n for n, _ in loader] == [3, 3]
    assert len(loader) == 2


def test_dropping_the_last_batch_never_drops_all():
    """Which examples a site holds decides how many it takes: one fewer is no reason to train on
    none."""
    assert len(loader_like(held(np.full(7, 0.4)), own_loader(drop_last=True))) == 1
    assert len(data_loader(held(np.ones(2)), batch_size=3, shuffle=True, weights=False)) == 1


def test_a_site_without_examples_of_its_own_trains_on_what_it_got():
    loader = loader_like(held(), own_loader(n=0, shuffle=False))
    assert sum(len(y) for _, y in loader) == 4


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ([1, 2], "like must be a DataLoader, got list"),
        (
            own_loader(shuffle=False, sampler=WeightedRandomSampler([1.0] * 7, 7)),
            "no sampler of its own, .*, got WeightedRandomSampler",
        ),
        (own_loader(shuffle=False, batch_size=None), "like must be a loader with a batch_size"),
    ],
)
def test_a_loader_whose_choice_would_be_ignored_is_refused(own, words):
    with pytest.raises(ArgumentError, match=words):
        loader_like(held(), own)


# What becomes of them


def test_an_optimiser_that_ignores_weights_does_not_overshoot():
    """A step of 1 at every site, whatever its copies, is a step of 1 of the model."""
    shares = [np.array([1, 1, 0.25]), np.array([1, 0.25, 0.25, 0.25])]
    answers = [
        coded_answer.answer({"w": np.zeros(1)}, held(b), lambda _: {"arrays": {"w": np.ones(1)}})
        for b in shares
    ]
    assert sum(answer["w"][0] for answer in answers) / 4 == -1


def test_who_has_no_share_need_not_train():
    found = coded_answer.answer({"w": np.ones(2)}, held(np.zeros(3)), lambda _: 1 / 0)
    assert found["w"].tolist() == [0, 0]


def test_a_training_function_that_takes_its_own_examples_is_told(tiny):
    def own_examples(_site, message, _context):
        return trained_model(0.1)(Own(), message, None)

    class Own:
        def batches(self, _context):
            yield np.zeros((2, 4)), np.array([0, 1]), np.ones(2)

    grid = tiny.grid(train=own_examples)
    with tiny.shared(grid) as federation:
        with pytest.raises(FederationError, match="nobody answered"):
            train(federation, grid, 1)
        (folder,) = tiny.state_dir.glob("training-*")
        last = federation.state.checkpoint(folder.name).history[-1]
    assert set(outcomes(last.to_json()).values()) == {ExamplesIgnored.__name__}


def test_bad_sizes_are_named(tiny):
    seen = []

    def wrong(site, message, context):
        for call in (
            lambda: site.batches(context, batch_size=0),
            lambda: site.batches(context, epochs=1.5),
            lambda: site.dataloader(context, batch_size=-1),
        ):
            try:
                call()
            except ArgumentError as error:
                seen.append(str(error))
        return trained_model(0.1)(site, message, context)

    grid = tiny.grid(train=wrong)
    with tiny.shared(grid) as federation:
        train(federation, grid, 1)
    assert seen[:3] == [
        "batch_size must be an integer >= 1, got 0",
        "epochs must be an integer >= 1, got 1.5",
        "batch_size must be an integer >= 1, got -1",
    ]
