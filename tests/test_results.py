"""docs/results.md says what the data beside it say, and its commands run study files that load."""

import re
from pathlib import Path

import numpy as np
import pytest
from experiments import clock_cells, coded_padded_fl, results

from fedcommons.simulate import studies, tuning

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "docs" / "results.md").read_text()
STUDIES = sorted((ROOT / "experiments").glob("*.toml"))


def test_every_table_is_there_once_and_as_the_data_have_it():
    assert sorted(re.findall(r"<!-- table: ([a-z0-9-]+) -->", DOCUMENT)) == sorted(results.TABLES)
    assert results.with_tables(DOCUMENT) == DOCUMENT


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.stem)
def test_study_files_load(study):
    assert studies.load(study).curves


def test_commands_of_the_document_leave_the_folders_that_its_data_come_from():
    commands = re.findall(r"^fedcommons simulate (\S+)(.*)$", DOCUMENT, flags=re.MULTILINE)
    left = []
    for study, options in commands:
        assert (ROOT / study).exists()
        out = re.search(r"--out results/(\S+)", options)
        left.append(out[1] if out else Path(study).stem)
    assert sorted(left) == sorted(results.STUDIES)


@pytest.mark.parametrize("study", results.STUDIES)
def test_data_are_of_the_study_file(study):
    """Every curve of the file was run, at one of its rates, as often as the file says."""
    name = study.removesuffix("-mnist").removesuffix("-fashion")
    asked = studies.load(ROOT / "experiments" / f"{name}.toml")
    found = results.reached(study)
    assert {len(r.right) for r in found} == {asked.runs}
    assert {r.curve for r in found} <= set(asked.curves)
    assert len(found) == len((tuning.untuned(asked) if asked.tune else asked).curves)
    assert all(((r.right >= -1) & (r.right <= results.TEST_SIZE)).all() for r in found)
    assert asked.test_size == results.TEST_SIZE


def test_differences_are_paired(monkeypatch):
    rng = np.random.default_rng(0)
    hard = rng.integers(0, 1000, 20).astype(float)  # what the runs differ in
    curves = [results.Curve("iid"), results.Curve("iid", code="owner-corrected")]
    monkeypatch.setattr(
        results,
        "reached",
        lambda _: [results.Reached(c, hard + 100 * k) for k, c in enumerate(curves)],
    )
    found = results.gain("any", {"code": "owner-corrected"}, {}, partition="iid")
    assert np.allclose(found, 0.05)


def test_a_run_that_diverged_counts_as_a_guess():
    found = results.Reached(results.Curve("iid"), np.array([1000.0, -1.0]))
    assert found.accuracy.tolist() == [0.5, results.CHANCE]
    assert str(found).endswith("†")


def line(seconds, *, simple=False):
    return clock_cells.Took("a cell", 0.9, 100.0, "a line", simple, 1.0, False, np.array(seconds))


def test_the_best_simple_policy_is_the_one_that_most_runs_get_there_with():
    often, fast = line([90.0, 80.0, 95.0], simple=True), line([9.0, np.inf, 9.0], simple=True)
    assert clock_cells.best_simple([fast, line([1.0] * 3), often]) is often


def test_runs_that_never_got_there_leave_a_bound():
    never, some = line([np.inf] * 3, simple=True), line([20.0, 20.0, 20.0])
    assert clock_cells._faster(never, some) == "> 5 (0.00)"
    assert clock_cells._faster(some, never) == "< 0.2 (0.00)"
    assert clock_cells._faster(never, line([np.inf] * 3)) == "–"
    assert clock_cells._faster(line([40.0, 80.0, 20.0], simple=True), some) == "2 (0.40)"


@pytest.mark.parametrize("cell", clock_cells.CELLS, ids=lambda cell: cell.name)
def test_cells_are_studies(cell):
    for one in (cell, cell.waits, cell.untuned):
        assert len(one.study("mnist").figures) == 1


def test_tasks_of_coded_padded_fl_are_studies(tmp_path):
    path, y = tmp_path / "few.npz", np.repeat(np.arange(10), 3)
    np.savez(path, x_train=np.zeros((30, 2)), y_train=y, x_test=np.zeros((30, 2)), y_test=y)
    for task in coded_padded_fl.TASKS:
        for one in (task, task.waits):
            assert len(one.study(path).figures) == 1


def test_random_features_stand_for_their_kernel():
    images = np.random.default_rng(0).integers(0, 32, (6, 28, 28), np.uint8)
    images[3:] *= 5  # dark ones are near their negatives, bright ones far from each other
    found = coded_padded_fl.features(images) / coded_padded_fl.SCALE
    pixels = images.reshape(6, -1) / 255
    distances2 = ((pixels[:, None] - pixels) ** 2).sum(axis=-1)
    kernel = np.exp(-distances2 / (2 * coded_padded_fl.WIDTH**2))
    # a mean of F products 2 cos cos, each of variance at most 1; k = 5 standard errors
    assert np.allclose(found @ found.T, kernel, atol=5 / np.sqrt(coded_padded_fl.FEATURES))


def test_residuals_are_the_slope_of_least_squares():
    rng = np.random.default_rng(0)
    loss, y = coded_padded_fl.LeastSquares(10), rng.integers(0, 10, (1, 30))
    scores, way = rng.normal(size=(2, 1, 30, 10))
    change = (loss.values(scores + 1e-3 * way, y) - loss.values(scores - 1e-3 * way, y)) / 2e-3
    slope = (loss.residuals(scores, y, np.ones((1, 30), np.float32)) * way).sum(axis=-1)
    assert np.allclose(change, slope)
