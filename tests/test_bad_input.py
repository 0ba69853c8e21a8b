"""A wrong argument raises an error that names the argument, the rule and the value."""

import numpy as np
import pytest

from fedcommons import coding, datasets, estimators, partition, privacy, sharing, stragglers
from fedcommons.errors import ArgumentError, FedcommonsError
from fedcommons.placement import Placement
from fedcommons.tasks import softmax
from fedcommons.theory import heterogeneity, lambdas, scalar_products, second_moment

RNG = np.random.default_rng(0)
LABELS, OWNER, MASK = [0, 1, 1], [0, 1, 1], [True, False, True]
NAN = float("nan")
PLACEMENT = Placement.from_copies(OWNER, [0], [1], n_clients=2)
EXAMPLE = dict(rng=RNG, n_clients=2)


def randomised(owner=OWNER, shareable=MASK, copies=1, **options):
    return sharing.randomised(owner, shareable, copies, **{**EXAMPLE, **options})


def optimal(**options):
    defaults = dict(labels=LABELS, owner=OWNER, shareable=MASK, **EXAMPLE)
    return sharing.optimal(**{**defaults, **options})


def theorem1(**options):
    defaults = dict(distance=0.5, n_clients=3, class_size=10, proportion=0.5, copies=1)
    return heterogeneity.theorem1(**{**defaults, **options})


CASES = [
    # labels and owners
    (lambda: partition.iid([0.0, 1.0], 2, rng=RNG), "labels must be integers, got dtype float64"),
    (lambda: partition.iid(["a"], 2, rng=RNG), "labels must be integers, got dtype <U1"),
    (lambda: partition.iid([0, NAN], 2, rng=RNG), "labels must be integers, got dtype float64"),
    (lambda: partition.iid([[0, 1]], 2, rng=RNG), "labels must have one dimension"),
    (lambda: partition.iid([0, -1], 2, rng=RNG), "labels must be >= 0, got -1"),
    (
        lambda: partition.label_counts([0, 3], [0, 0], 1, n_classes=3),
        "labels must be in {0, ..., 2",
    ),
    (lambda: partition.given([0, 2], 2), "owner must be in {0, ..., 1}, got 2"),
    (lambda: partition.given([True, False], 2), "owner must be integers, got dtype bool"),
    (lambda: partition.label_counts([0, 1], [0], 1), "owner must have 2 entries, got 1"),
    # number of clients, generator, alpha
    (lambda: partition.iid([0], 0, rng=RNG), "n_clients must be an integer >= 1, got 0"),
    (lambda: partition.iid([0], 2.0, rng=RNG), "n_clients must be an integer >= 1, got 2.0"),
    (lambda: partition.iid([0], True, rng=RNG), "n_clients must be an integer >= 1, got True"),
    (lambda: partition.iid([0], 2, rng=7), "rng must be a numpy.random.Generator, got int"),
    (
        lambda: partition.dirichlet([0], 2, 0, rng=RNG),
        "alpha must be > 0 and finite, got 0",
    ),
    (lambda: partition.dirichlet([0], 2, NAN, rng=RNG), "alpha must be > 0"),
    (lambda: partition.dirichlet([0], 2, "1", rng=RNG), "alpha must be a real number"),
    (
        lambda: partition.heterogeneity([1, 2]),
        "counts must have shape (clients, classes), got (2,)",
    ),
    # c
    (lambda: privacy.proportion(LABELS, OWNER, 1.2, **EXAMPLE), "must be in [0, 1], got 1.2"),
    (lambda: privacy.proportion(LABELS, OWNER, -0.1, **EXAMPLE), "must be in [0, 1], got -0.1"),
    (lambda: privacy.proportion(LABELS, OWNER, NAN, **EXAMPLE), "must be in [0, 1], got nan"),
    (lambda: privacy.proportion(LABELS, OWNER, [0.1] * 3, **EXAMPLE), "one per client (2), got"),
    (
        lambda: privacy.proportion_per_class(LABELS, OWNER, [0.1] * 3, **EXAMPLE),
        "one per class (2), got shape (3,)",
    ),
    (lambda: privacy.given([1, 0, 1], 3), "shareable must be a boolean mask, got dtype int64"),
    (lambda: privacy.given([True], 3), "shareable must have 3 entries, got 1"),
    # d, masks, budgets
    (lambda: randomised(copies=2), "copies must be an integer in {0, ..., 1}, got 2"),
    (lambda: randomised(copies=-1), "copies must be an integer in {0, ..., 1}, got -1"),
    (lambda: randomised(copies=0.5), "copies must be an integer in {0, ..., 1}, got 0.5"),
    (lambda: randomised(shareable=[0, 1, 1]), "shareable must be a boolean mask, got dtype int64"),
    (lambda: randomised(shareable=MASK[:2]), "shareable must have 3 entries, got 2"),
    (lambda: randomised(owner=[0, 1, 5]), "owner must be in {0, ..., 1}, got 5"),
    (lambda: randomised(rng=None), "rng must be a numpy.random.Generator, got NoneType"),
    (lambda: optimal(), "copies or budget must be given, one of them, got neither"),
    (
        lambda: optimal(copies=1, budget=[1, 1]),
        "copies or budget must be given, one of them, got b",
    ),
    (lambda: optimal(budget=[1]), "budget must have 2 entries, got 1"),
    (lambda: optimal(budget=[9, 0]), "(1 for label 0), got 9"),
    (lambda: optimal(budget=[0.5, 0]), "budget must be integers, got dtype float64"),
    (
        lambda: sharing.optimal_counts([[1], [2]], [[1], [3]], [0], rng=RNG),
        "shareable_counts must not exceed counts (2 of label 0 at client 1), got 3",
    ),
    # placements
    (lambda: PLACEMENT.held_by(2), "client must be an integer in {0, ..., 1}, got 2"),
    (lambda: PLACEMENT.holders(-1), "example must be an integer in {0, ..., 2}, got -1"),
    (lambda: PLACEMENT.label_counts([0]), "labels must have 3 entries, got 1"),
    (lambda: PLACEMENT.relabel([0, 0]), "new_name must be a permutation"),
    # p
    (lambda: stragglers.Bernoulli(1.0), "straggler_prob must be in [0, 1), got 1"),
    (lambda: stragglers.Bernoulli(-0.1), "straggler_prob must be in [0, 1), got -0.1"),
    (lambda: stragglers.Bernoulli(NAN), "prob must be finite, got nan"),
    (lambda: stragglers.Bernoulli("a lot"), "prob must be a real number"),
    (
        lambda: stragglers.Bernoulli([0.1, 0.2]).straggler_prob(3),
        "one per client (3), got shape (2",
    ),
    (
        lambda: stragglers.Bernoulli(0.1).answered(-1, 2, rng=RNG),
        "n_rounds must be an integer >= 0",
    ),
    (lambda: stragglers.Markov(0.8, 2), "= 4 rounds for p = 0.8, got 2"),
    (lambda: stragglers.Markov(0.1, 0.5), "= 1 rounds for p = 0.1, got 0.5"),
    (lambda: stragglers.Markov(0.1, float("inf")), "mean_absence must be finite"),
    (lambda: stragglers.Trace([[1, 0]]), "mask must be boolean with shape (rounds, clients)"),
    (lambda: stragglers.Trace(np.ones((0, 2), bool)), "mask must be boolean with shape"),
    (lambda: stragglers.Trace(np.ones((4, 2), bool)).answered(5, 2, rng=RNG), "the 4 recorded"),
    (lambda: stragglers.Trace(np.ones((4, 2), bool)).answered(4, 3, rng=RNG), "have 3 clients"),
    (lambda: coding.reliability_split(PLACEMENT, 1.0), "straggler_prob must be in [0, 1), got 1"),
    (lambda: coding.owner_corrected(PLACEMENT, [1, NAN]), "owner_share must be finite, got nan"),
    (lambda: coding.owner_corrected(PLACEMENT, [1, 2, 3]), "owner_share must be one number or one"),
    (lambda: coding.owner_share_from_products(PLACEMENT, np.eye(2)), "must have shape (3, 3)"),
    (lambda: stragglers.Bernoulli([]), "prob must be one number or one per client, got shape (0,)"),
    (lambda: coding.best_owner_share([1, 2], [1, 2, 3], [1, 2]), "must have shape (2,), got (3,)"),
    # what NumPy would wrap, broadcast or choke on
    (lambda: partition.iid([[0], [1, 2]], 2, rng=RNG), "labels must be an array"),
    (
        lambda: partition.iid(np.array([2**63], np.uint64), 2, rng=RNG),
        "labels must be <= 9223372036",
    ),
    (lambda: partition.iid([0], 2**31, rng=RNG), "n_clients must be <= 2147483647, got 2147483648"),
    (lambda: partition.label_counts([0], [0], 1, n_classes="x"), "n_classes must be an integer"),
    (lambda: partition.label_counts([0], [0], 1, n_classes=0), "n_classes must be an integer >= 1"),
    (
        lambda: Placement(np.array([0]), np.array([0, 1]), np.array([2**32 + 2]), 3),
        "recipients must be in {0, ..., 2}, got 4294967298",
    ),
    (lambda: partition.heterogeneity([[1], [-1]]), "counts must be >= 0, got -1"),
    (lambda: sharing.optimal_counts([[1]], [[1]], [0], rng=3), "rng must be a numpy.random.Gen"),
    (lambda: estimators.start("memory", 2, 2), "estimator must be an Estimator"),
    (lambda: estimators.estimate("memory", None, [[1.0]], [True], 0), "estimator must be an Est"),
    (lambda: Placement.load(None), "path must be a path, got None"),
    (lambda: PLACEMENT.save(""), "path must be a path, got ''"),
    (lambda: datasets.load(None), "path must be a path, got None"),
    (
        lambda: second_moment.variance(np.ones((3, 2)), 0.5, remembered=np.ones((1, 2))),
        "remembered must have shape (3, 2), got (1, 2)",
    ),
    (
        lambda: second_moment.variance_from_products(np.eye(3), np.ones((3, 1)), 0.5),
        "products must have shape (3, 3), got (3, 1)",
    ),
    (
        lambda: scalar_products.pair_sums_from_products(np.ones((3, 2)), LABELS, MASK),
        "products must have shape (3, 3), got (3, 2)",
    ),
    (lambda: softmax.gradients(np.ones((2, 2)), np.ones((1, 3))), "residuals must have 2 entries"),
    # theory
    (lambda: theorem1(distance=-0.1), "distance must be in [0, (N-1)/N = 0.666667], got -0.1"),
    (lambda: theorem1(distance=0.7), "distance must be in [0, (N-1)/N = 0.666667], got 0.7"),
    (lambda: theorem1(copies=3), "copies must be an integer in {0, ..., 2}, got 3"),
    (lambda: theorem1(proportion=2), "proportion must be in [0, 1], got 2"),
    (lambda: theorem1(class_size=0), "class_size must be an integer >= 1, got 0"),
    (lambda: theorem1(distance=NAN), "distance must be finite, got nan"),
    (lambda: heterogeneity.expected([1], [1], 0), "counts must have shape (clients, classes)"),
    (lambda: heterogeneity.expected([[1]], [[1, 1]], 0), "must have the shape (1, 1), got (1, 2)"),
    (
        lambda: lambdas.expected(n_clients=3, copies=1, straggler_prob=1),
        "straggler_prob must be in [0, 1), got 1",
    ),
    (lambda: second_moment.variance([[NAN]], 0.5), "answers must be finite, got nan"),
    (lambda: second_moment.variance([1.0], 0.5), "answers must have 2 dimensions"),
    (
        lambda: scalar_products.pair_sums(np.eye(3), [0, 1], MASK),
        "groups must have 3 entries, got 2",
    ),
    (lambda: softmax.residuals([[0.0, 0.0]], [2]), "labels must be in {0, ..., 1}, got 2"),
    (lambda: softmax.gradients([[NAN]], [[0.0]]), "inputs must be finite, got nan"),
]


@pytest.mark.parametrize(("call", "message"), CASES, ids=[message for _, message in CASES])
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert message in str(caught.value)
    assert isinstance(caught.value, FedcommonsError)
    assert isinstance(caught.value, ValueError)  # what NumPy's users would catch
