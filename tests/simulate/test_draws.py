"""Every draw of a run depends on the seed and on the run, and on nothing else that may change."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from fedcommons.simulate import draws, example_space, runner, studies
from fedcommons.simulate.curves import Curve

N_CLIENTS, N_ROUNDS, CLASS_SIZE = 10, 20, 20
PARTITIONS = {
    "iid": Curve("iid", 0.0, 0.5, 0.5, 3),
    "single-class": Curve("single-class", 0.0, 0.5, 0.5, 3),
    "dirichlet": Curve("dirichlet", 0.5, 0.5, 0.5, 3),
}


def drawn(blobs, curve, seed, run):
    """Each draw alone: what follows from it is drawn on the same labels, owners and masks."""
    data = draws.training_set(blobs, CLASS_SIZE, seed=seed, run=run)
    shared = draws.share(curve, data.labels, N_CLIENTS, seed=seed, run=run)
    # Without owners that differ, only the stream can make the masks and the copies differ.
    fixed = Curve("single-class", 0.0, 0.5, 0.5, 3)
    alike = draws.share(fixed, np.repeat(np.arange(N_CLIENTS), 8), N_CLIENTS, seed=seed, run=run)
    everything = draws.share(
        Curve("single-class", 0.0, 0.5, 1.0, 3),
        np.repeat(np.arange(N_CLIENTS), 8),
        N_CLIENTS,
        seed=seed,
        run=run,
    )
    return {
        "training set": data.inputs,
        "partition": shared.owner,
        "privacy": alike.shareable,
        "sharing": everything.placement.holdings().toarray(),
        "stragglers": draws.answered(curve, N_ROUNDS, N_CLIENTS, seed=seed, run=run),
        "lasting stragglers": draws.answered(
            Curve("iid", 0.0, 0.5, stragglers="markov", mean_absence=3.0),
            N_ROUNDS, N_CLIENTS, seed=seed, run=run,
        ),
    }  # fmt: skip


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize(("seed", "run"), [(1, 0), (0, 1)], ids=["seed", "run"])
def test_another_seed_or_run_draws_everything_anew(blobs, partition, seed, run):
    curve = PARTITIONS[partition]
    one, same, other = (drawn(blobs, curve, *key) for key in ((0, 0), (0, 0), (seed, run)))
    for name in one:
        assert np.array_equal(one[name], same[name]), name
        assert not np.array_equal(one[name], other[name]), name


def test_a_run_is_computed_on_one_thread(monkeypatch, tmp_path, blobs):
    np.savez(
        tmp_path / "blobs.npz",
        x_train=blobs.x_train, y_train=blobs.y_train, x_test=blobs.x_test, y_test=blobs.y_test,
    )  # fmt: skip
    figure = {"name": "a", "kind": "curves", "partition": "iid", "curves": [{"label": "x"}]}
    content = {"name": "small", "clients": 3, "class_size": 5, "rounds": 1, "figure": [figure]}
    study = studies.parse(content, data=str(tmp_path / "blobs.npz"))
    seen = []

    def simulate_run(*arguments, **options):
        seen.extend(pool["num_threads"] for pool in threadpool_info())
        return original(*arguments, **options)

    original = example_space.simulate_run
    monkeypatch.setattr(example_space, "simulate_run", simulate_run)
    with threadpool_limits(2):
        assert {pool["num_threads"] for pool in threadpool_info()} == {2}
        runner.compute_block(study, 0)
    assert set(seen) == {1}
