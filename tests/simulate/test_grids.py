"""Grids of settings, rates chosen on held-out data, and curves that diverge."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fedcommons.errors import DataError, StudyError
from fedcommons.simulate import definition, feasible, runner, studies, tables, tuning
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.result import RunResult
from fedcommons.simulate.run_moments import RunMoments
from tests.simulate.test_runner import contents, run

GRID = """
name = "grid"
dataset = "blobs.npz"
clients = 4
class_size = 6
rounds = 4
runs = 6
learning_rate = 0.3
[[grid]]
partition = ["single-class", "dirichlet"]
alpha = [0.1, 1.0]
p = [0.2, 0.6]
c = [0.0, 0.5]
d = [1, 2]
estimator = ["coded_sum", "memory"]
warm = [false, true]
[[grid]]
partition = "single-class"
p = 0.2
algorithm = ["fedavg", "fedprox"]
c = 0.5
mu = [0.1, 0.2]
local_steps = 2
model = "mlp"
"""
TUNED = """
name = "tuned"
dataset = "blobs.npz"
clients = 4
class_size = 6
rounds = 4
runs = 2
tune = true
tune_runs = 2
learning_rate = [0.001, 0.5, 1e30]
[grid]
partition = "iid"
p = 0.3
algorithm = ["coded_gd", "fedavg"]
"""


@pytest.fixture
def folder(tmp_path, blobs):
    np.savez(
        tmp_path / "blobs.npz",
        x_train=blobs.x_train, y_train=blobs.y_train, x_test=blobs.x_test, y_test=blobs.y_test,
    )  # fmt: skip
    return tmp_path


def load(folder, text):
    (folder / "study.toml").write_text(text)
    return studies.load(folder / "study.toml")


def test_a_grid_is_every_combination_that_differs(folder):
    study = load(folder, GRID)
    titles = [figure.title for figure in study.figures]
    assert titles == [
        "softmax, single-class", "softmax, Dirichlet α = 0.1", "softmax, Dirichlet α = 1",
        "mlp, single-class",
    ]  # fmt: skip
    assert study.figures[1].name == "softmax-dirichlet-alpha-0.1"
    labels = [line.label for line in study.figures[0].lines if line.curve.straggler_prob == 0.2]
    # No sharing once, not for every d; warm only with memory.
    assert labels == [
        "coded gd, no sharing", "coded gd, no sharing, memory",
        "coded gd, no sharing, memory, warm",
        "coded gd, (0.5, 1)", "coded gd, (0.5, 1), memory", "coded gd, (0.5, 1), memory, warm",
        "coded gd, (0.5, 2)", "coded gd, (0.5, 2), memory", "coded gd, (0.5, 2), memory, warm",
    ]  # fmt: skip
    others = [(line.label, line.curve) for line in study.figures[3].lines]
    base = dict(straggler_prob=0.2, learning_rate=0.3, local_steps=2, model="mlp")
    assert others == [
        ("fedavg, steps 2", Curve("single-class", algorithm="fedavg", **base)),
        ("fedprox, steps 2, μ 0.1", Curve("single-class", algorithm="fedprox", mu=0.1, **base)),
        ("fedprox, steps 2, μ 0.2", Curve("single-class", algorithm="fedprox", mu=0.2, **base)),
    ]  # fmt: skip
    assert definition.from_dict(json.loads(json.dumps(study.as_dict()))) == replace(
        study, figures=study.figures
    )


UNUSED = """
name = "unused"
dataset = "blobs.npz"
clients = 4
learning_rate = 0.3
[grid]
partition = "iid"
p = 0.2
c = 0.5
d = 2
"""


@pytest.mark.parametrize(
    ("keys", "n_curves"),
    [
        ('assumed_p = [0.1, 0.5]\nalgorithm = ["coded_gd", "fedavg"]', 2 + 1),
        ('assumed_p = [0.1, 0.5]\nestimator = ["memory", "responder_average"]', 2 + 1),
        ('assumed_p = [0.1, 0.5]\nalgorithm = "stochastic_gradient_coding"\nc = 1.0', 2),
        ('assumed_p = [0.1, 0.5]\nalgorithm = "hybrid"', 1),
        ('code = ["equal-split", "reliability-split", "owner-corrected"]', 2),
        ('code = ["equal-split", "reliability-split"]\np_spread = [0.0, 0.1]', 1 + 2),
        ('code = ["equal-split", "reliability-split"]\np_spread = 0.1\nassumed_p = 0.3', 1),
        (
            'code = ["equal-split", "reliability-split"]\np_spread = 0.1\n'
            'estimator = "wait_for_all"\nassumed_p = [0.1, 0.5]',
            1,
        ),
    ],
)
def test_what_changes_nothing_is_run_once(folder, keys, n_curves):
    text = UNUSED.replace("c = 0.5\n", "") if "c = 1" in keys else UNUSED
    assert len(load(folder, text + keys).curves) == n_curves


def test_lines_say_how_unequal_their_clients_are(folder):
    text = GRID.replace("mu = [0.1, 0.2]", "mu = 0\np_spread = [0, 0.1]")
    labels = [line.label for line in load(folder, text).figures[3].lines]
    assert labels == [
        f"{name}, steps 2{spread}" for name in ("fedavg", "fedprox") for spread in ("", ", p ± 0.1")
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("local_steps = 2", "local_step = 2", "'local_step' in [grid]; did you mean 'local_steps'"),
        ('"fedavg"', '"fedsgd"', "algorithm must be one of coded_gd, coded_fedavg"),
        (
            'model = "mlp"',
            'model = "vgg"',
            "model must be one of softmax, linear, mlp, cnn, or the import",
        ),
        ('"fedavg"', '"cyclic_repetition"', "local_steps must be 1 for cyclic_repetition, got 2"),
        ("mu = [0.1, 0.2]", 'mu = "strong"', "mu must be a number, got 'strong'"),
        ("mu = [0.1, 0.2]", "mu = []", "mu must have at least one value, got an empty list"),
        ("rounds = 4", "rounds = 4\ntune = 1", "tune must be true or false, got 1"),
        ("rounds = 4", "rounds = 4\ntune = true", "tune must have several values of learning_rate"),
        ("class_size = 6", "class_size = 0", "class_size must be an integer >= 1, got 0"),
        ("rounds = 4", "rounds = 4\ntest_size = -1", "test_size must be an integer >= 1, got -1"),
        ('model = "mlp"', 'model = "nowhere:net"', "model nowhere:net cannot be imported"),
        ("rounds = 4", 'rounds = 4\nengine = "plain"', "the plain engine and figures"),
        ("mu = [0.1, 0.2]\n", "", "mu must be given for fedprox, got none; 0 makes it fedavg"),
    ],
)
def test_mistakes_in_a_grid_are_named(folder, old, new, message):
    with pytest.raises(StudyError) as error:
        load(folder, GRID.replace(old, new))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('algorithm = "fedavg"\ncode = "typo"', "code must be one of equal-split, reliability-sp"),
        ('algorithm = "fedavg"\nestimator = "nonsense"', "estimator must be one of coded_sum, mem"),
        ('algorithm = "fedavg"\nwarm = 1', "warm must be true or false, got 1"),
        ("d = 0\nc = 5", "c must be in [0, 1], got 5"),
        ("d = 0\nc = nan", "c must be in [0, 1], got nan"),
        ("c = 0\nd = -1", "d must be an integer >= 0, got -1"),
        ("alpha = -3", "alpha must be > 0 and finite, got -3"),
        ('algorithm = "fedavg"\nmu = -1', "mu must be in [0, inf), got -1"),
        ("assumed_p = -1", "assumed_p must be in [0, inf), got -1"),
        ('algorithm = "fedavg"\nassumed_p = 1', "assumed_p must be in [0, 1), got 1"),
        ("mean_absence = 0.5", "mean_absence must be in [1, inf), got 0.5"),
        ('code = "typo"\nc = [0.0, 0.5]', "code must be one of"),
    ],
)
@pytest.mark.parametrize("table", ["grid", "figure"])
def test_values_of_keys_without_a_use_are_checked_too(folder, keys, message, table):
    lines = "" if table == "grid" else 'name = "one"\nkind = "curves"\ncurves = [{label = "a"}]\n'
    with pytest.raises(StudyError) as error:
        load(folder, f'name = "unused"\n[[{table}]]\npartition = "iid"\n{lines}{keys}')
    assert message in str(error.value)


def test_fractional_repetition_needs_teams_of_one_size(folder):
    text = GRID.replace('"fedavg", "fedprox"', '"fractional_repetition"').replace(
        "c = 0.5\nmu", "c = 1.0\nd = 2\nmu"
    ).replace("local_steps = 2", "local_steps = 1")  # fmt: skip
    with pytest.raises(StudyError, match="d \\+ 1 must divide the 4 clients"):
        load(folder, text)


def test_blocks_workers_and_interruptions_do_not_matter(folder):
    study = load(folder, GRID)
    assert len(study.batched_curves) == 3
    assert study.block_size == 5
    seen = []
    reference = run(study, folder / "a", workers=1, on_progress=lambda *n: seen.append(n))
    assert seen == [(0, 6), (5, 6), (6, 6)]
    assert len(list(reference.runs.glob("*.npz"))) == 10  # the second block, whole
    assert contents(run(study, folder / "b", workers=2)) == contents(reference)
    run(replace(study, runs=2), folder / "c", workers=1)
    (folder / "c" / "runs" / "00003.npz").unlink()
    assert contents(run(study, folder / "c", workers=1)) == contents(reference)


def slow_net(n_classes, input_shape):
    """Its draws leave another thread time to draw between them."""
    torch = pytest.importorskip("torch")
    layers = []
    for sizes in ((*input_shape, 4), (4, n_classes)):
        layers.append(torch.nn.Linear(*sizes))
        time.sleep(0.01)
    return torch.nn.Sequential(*layers)


def test_threads_of_a_worker_do_not_matter(folder):
    pytest.importorskip("torch")
    study = load(folder, GRID.replace('"mlp"', f'"{__name__}:slow_net"'))
    alone = [runner.compute_block(study, block) for block in range(3)]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda block: runner.compute_block(study, block), range(3)))
    for a, b in zip(alone, together, strict=True):
        for run_number, result in a.items():
            for name in RunResult.names():
                found, wanted = getattr(b[run_number], name), getattr(result, name)
                assert np.array_equal(found, wanted, equal_nan=True), name


def test_mixed_studies_keep_every_curve_in_its_place(folder):
    study = load(folder, GRID)
    mixed = run(study, folder / "a", workers=1).read_run(1, study.digest)
    alone = replace(study, figures=study.figures[:1])
    found = run(alone, folder / "b", workers=1).read_run(1, alone.digest)
    for k, curve in enumerate(alone.curves):
        at = study.curves.index(curve)
        assert np.allclose(found.second_moment[k], mixed.second_moment[at], rtol=1e-5)
    last = next(k for k, curve in enumerate(study.curves) if curve.algorithm == "fedprox")
    assert np.isnan(mixed.second_moment_exact[last]).all()  # not computed for it
    assert np.isfinite(mixed.second_moment[last]).all()


def test_the_digest_knows_models_blocks_and_test_sizes(folder):
    study = load(folder, GRID)
    digests = {
        replace(study, **change).digest
        for change in (
            {}, {"test_size": 50}, {"engine": "batched"}, {"pool": "tuned"},
        )
    }  # fmt: skip
    assert len(digests) == 4


def test_test_size_is_a_part_of_the_test_set(folder):
    study = replace(load(folder, GRID), test_size=20)
    assert len(runner.study_data(study).y_test) == 20
    assert len(runner.study_data(replace(study, test_size=None)).y_test) == 105


def test_all_examples_may_be_trained_on(folder):
    study = load(folder, GRID.replace("class_size = 6", 'class_size = "all"'))
    assert study.class_size is None
    small = replace(study, runs=1, rounds=1, figures=study.figures[:1])
    assert small.block_size == 1
    assert small.batched_curves == small.curves  # too many pairs for example space
    run(small, folder / "r", workers=1)


def test_what_is_held_out_is_never_trained_on(folder, blobs):
    study = load(folder, TUNED)
    pools = {
        name: runner.study_data(replace(study, tune=False, pool=name))
        for name in ("all", "tuning", "tuned")
    }
    assert np.array_equal(pools["tuning"].x_train, pools["tuned"].x_train)
    assert np.array_equal(pools["tuned"].x_test, blobs.x_test)
    held = {row.tobytes() for row in pools["tuning"].x_test}
    assert len(held) == 18  # a sixth of each class
    assert not held & {row.tobytes() for row in pools["tuned"].x_train}
    assert held < {row.tobytes() for row in pools["all"].x_train}


def test_each_line_gets_its_best_rate(folder):
    study = load(folder, TUNED)
    tried = tuning.tuning_study(study)
    assert [line.label for line in study.figures[0].lines] == ["coded gd"] * 3 + ["fedavg"] * 3
    where = run(tried, folder / "tuning", workers=1)
    chosen, record = tuning.choose(study, where, 18)
    assert {line.curve.learning_rate for line in chosen.figures[0].lines} == {0.5}
    assert [line.label for line in chosen.figures[0].lines] == ["coded gd", "fedavg"]
    assert (chosen.pool, chosen.tune, chosen.runs) == ("tuned", False, 2)
    assert tuning.at_the_edge(study, chosen) == (0, 0)
    curves = [tuning._without_rate(curve) for curve in chosen.curves]
    ends = dict(zip(curves, (0.001, 1e30), strict=True))
    assert tuning.at_the_edge(study, tuning.with_rates(study, ends)) == (1, 1)
    assert len(record) == 6
    assert sum(row["chosen"] for row in record) == 2
    for row in record:
        wanted = row["chosen"] == ("learning_rate=0.5" in row["curve"])
        assert wanted, row
    # Separate runs: tuning's first is not the study's first.
    found = run(chosen, folder / "study", workers=1)
    a, b = found.read_run(0, chosen.digest), where.read_run(0, tried.digest)
    at = tried.curves.index(chosen.curves[0])
    assert not np.allclose(a.second_moment[0], b.second_moment[at], rtol=1e-2)


def test_rates_are_judged_by_the_second_half_of_the_rounds(folder):
    """Of 4 rounds, 3 and 4: neither the untrained model nor a quick start counts."""
    study = load(folder, TUNED.replace("tune_runs = 2", "tune_runs = 1"))
    tried = tuning.tuning_study(study)
    late, early = [0, 0, 0, 6, 6], [9, 9, 9, 5, 5]

    correct = [late if curve.learning_rate == 0.5 else early for curve in tried.curves]
    nothing = np.zeros((len(correct), 4))
    result = RunResult(np.array(correct), *[nothing] * 4, nothing[:, :3], nothing)
    tried_out = SimpleNamespace(read_run=lambda _run, _digest: result)
    chosen, record = tuning.choose(study, tried_out, 10)
    assert {curve.learning_rate for curve in chosen.curves} == {0.5}
    assert {row["held_out_accuracy"] for row in record} == {0.5, 0.6}


def test_a_tuned_study_knows_its_results_before_it_is_tuned_again(folder):
    study = load(folder, TUNED)
    nothing = Folder(folder / "nothing")
    assert tuning.expected(study, nothing) == tuning.untuned(study)
    rates = {tuning._without_rate(c): 0.5 for c in study.curves}
    before = tuning.with_rates(study, rates)
    found = run(before, folder / "study", workers=1)
    assert tuning.expected(study, found).digest == before.digest
    assert runner.missing_blocks(tuning.expected(replace(study, runs=2), found), found) == {}
    others = load(folder, TUNED.replace("0.5", "0.4"))  # a rate that is no longer tried
    assert tuning.expected(others, found) == tuning.untuned(others)
    others = load(folder, TUNED.replace('["coded_gd", "fedavg"]', '"coded_gd"'))
    assert tuning.expected(others, found) == tuning.untuned(others)


def test_a_curve_that_diverges_is_marked_and_the_others_go_on(folder):
    text = GRID.replace("learning_rate = 0.3", "learning_rate = [0.3, 1e38]").replace(
        '"coded_sum", "memory"', '"coded_sum"'
    )  # fmt: skip
    study = load(folder, text)
    study = replace(study, runs=2, figures=(study.figures[0], study.figures[3]))
    found = run(study, folder / "r", workers=1)
    result = found.read_run(0, study.digest)
    large = np.array([curve.learning_rate > 1 for curve in study.curves])
    assert result.diverged[large].any()
    assert not result.diverged[~large].any()
    assert (result.correct[:, 0] >= 0).all()
    rows = found.read_table("curves.parquet").to_pylist()
    for row in rows:
        if row["learning_rate"] < 1:
            assert row["diverged"] == 0
            assert np.isfinite(row["accuracy_mean"])
        if row["diverged"] == 2:
            assert np.isnan(row["accuracy_mean"])
    assert {row["diverged"] for row in rows} > {0}
    last = tables.last_round(found)
    assert any(line["accuracy"] is None and line["diverged"] == 2 for line in last)
    per_run = found.read_table("runs.parquet").to_pylist()
    assert {row["diverged"] for row in per_run} == {True, False}


def test_means_are_of_the_runs_that_did_not_diverge():
    moments = RunMoments(2)
    values = np.array([[1.0, 2.0], [10.0, 20.0]])
    for k, counts in enumerate(([True, True], [True, False], [True, True])):
        lost = np.where(np.array(counts)[:, None], values * (k + 1), np.nan)
        moments.add(lost, np.array(counts))
    assert moments.mean.tolist() == [[2.0, 4.0], [20.0, 40.0]]
    assert moments.sem[0, 0] == pytest.approx(1 / np.sqrt(3))
    assert moments.sem[1, 0] == pytest.approx(np.std([10, 30], ddof=1) / np.sqrt(2))


def test_datasets_that_cannot_be_learnt_from_are_refused(folder, blobs):
    study = load(folder, GRID)
    one = type(blobs)("x", blobs.x_train, 0 * blobs.y_train, blobs.x_test, 0 * blobs.y_test)
    with pytest.raises(DataError, match="must have at least two classes, got one"):
        feasible.check_fits(study, one)
    x = blobs.x_train.copy()
    x[3, 2] = np.nan
    np.savez(
        folder / "blobs.npz", x_train=x, y_train=blobs.y_train, x_test=blobs.x_test,
        y_test=blobs.y_test,
    )  # fmt: skip
    with pytest.raises(DataError, match="must be finite, got a missing value in example 3"):
        runner.study_data(replace(study, seed=99))


def test_figures_say_what_diverged(folder):
    from fedcommons.figures.report import write_report

    text = GRID.replace("learning_rate = 0.3", "learning_rate = [0.3, 1e38]")
    study = load(folder, text)
    study = replace(study, runs=1, figures=(study.figures[3],))
    found = run(study, folder / "r", workers=1)
    found.finish(study, seconds=1.0, fresh_runs=1)
    write_report(found)
    svg = (found.figures / "mlp-single-class.svg").read_text()
    assert "Diverged and left out" in svg
    page = (found.path / "report.html").read_text(encoding="utf-8")
    assert "Diverged, and left out of the means:" in page
    assert "fedavg (McMahan" in page
