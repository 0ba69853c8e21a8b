"""Parts that nobody here wrote, found by import path, work everywhere that the package's own do."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.image import imread

from fedcommons import datasets, estimators, simulate
from fedcommons.errors import ArgumentError, StudyError
from fedcommons.estimators import ESTIMATORS
from fedcommons.figures.report import write_report
from fedcommons.simulate import batched, draws, example_space, plain_engine, runner, studies
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.runner import _softmax_task
from fedcommons.simulate.scoring import Evaluation
from fedcommons.tasks import softmax
from tests import odd_parts
from tests.odd_parts import (
    ODD_ALGORITHMS,
    ODD_CODES,
    ODD_ESTIMATORS,
    ODD_OPTIMIZERS,
    ODD_PARTITIONS,
    ODD_SCHEMES,
)
from tests.reference import loops

SIZES = dict(n_clients=4, class_size=7, n_rounds=6, seed=3)
BASE = Curve("dirichlet", 0.2, 0.5, 0.6, 2, learning_rate=0.5, decay=0.9)
ODD = [
    *(replace(BASE, estimator=name) for name in ODD_ESTIMATORS),
    *(
        replace(BASE, estimator=name, warm=True)
        for name in ODD_ESTIMATORS
        if ESTIMATORS[name].remembers
    ),
    replace(BASE, estimator="tests.odd_parts:damped", code="owner-corrected"),
    *(replace(BASE, code=name) for name in ODD_CODES),
    *(replace(BASE, code=name, estimator="memory") for name in ODD_CODES),
    *(replace(BASE, partition=name, alpha=0.0) for name in ODD_PARTITIONS),
    *(replace(BASE, scheme=name) for name in ("per-client", "optimal", *ODD_SCHEMES)),
]
MEASURES = ("second_moment", "second_moment_exact", "gradient_norm2", "projection")
NAMES = {
    "estimator": ODD_ESTIMATORS,
    "code": ODD_CODES,
    "partition": ODD_PARTITIONS,
    "scheme": ODD_SCHEMES,
    "algorithm": ODD_ALGORITHMS,
    "server_optimizer": ODD_OPTIMIZERS,
}
STUDY = """
name = "odd"
clients = 4
class_size = 5
rounds = 3
runs = 2
[[grid]]
partition = ["dirichlet", "{partition}"]
alpha = 0.3
p = [0.2, 0.6]
c = 0.6
d = 2
code = ["equal-split", "{code}"]
estimator = ["coded_sum", "{estimator}", "{other}", "{unknown}"]
scheme = ["randomised", "{scheme}"]
[[grid]]
partition = "iid"
p = 0.4
algorithm = "{algorithm}"
mu = 0.1
local_steps = 2
server_optimizer = ["sgd", "adam", "{server_optimizer}"]
"""


def study_text() -> str:
    names = {field: parts[0] for field, parts in NAMES.items()}
    other, unknown = ODD_ESTIMATORS[1], ODD_ESTIMATORS[3]
    return STUDY.format(**names, other=other, unknown=unknown)


@pytest.fixture(scope="module")
def slow(blobs):
    return plain_engine.simulate_run(blobs, _softmax_task, ODD, **SIZES, run=0)


def test_example_space_gives_what_the_plain_engine_gives(blobs, slow):
    fast = example_space.simulate_run(blobs, Evaluation(blobs), ODD, **SIZES, run=0)
    assert np.abs(fast.correct - slow.correct).max() <= 1
    for name in MEASURES:
        a, b = getattr(fast, name), getattr(slow, name)
        assert np.allclose(a, b, rtol=2e-4, atol=1e-6, equal_nan=True), name
    assert np.array_equal(fast.heterogeneity, slow.heterogeneity, equal_nan=True)


def test_the_batched_engine_gives_what_the_plain_engine_gives(blobs, slow):
    [fast] = batched.simulate_block(blobs, ODD, **SIZES, runs=[0])
    assert np.abs(fast.correct - slow.correct).max() <= 1
    assert np.allclose(fast.second_moment, slow.second_moment, rtol=2e-4, atol=1e-6)


def test_the_exact_second_moment_is_the_mean_over_all_patterns_or_not_there(blobs, slow):
    data = draws.training_set(blobs, 7, seed=3, run=0)
    gradients = softmax.gradients(data.inputs, softmax.initial_residuals(data.labels, 3))
    for k, curve in enumerate(ODD):
        shared = draws.share(curve, data.labels, 4, seed=3, run=0)
        answers = draws.shares(curve, shared.placement, data.products) @ gradients
        estimator, p = ESTIMATORS[curve.estimator], curve.straggler_prob
        first = answers if curve.warm else None
        state = estimators.start(estimator, 4, gradients.shape[1], warm=first)
        total = 0.0
        for answered, prob in loops.straggler_patterns(np.full(4, p)):
            value, _ = estimators.estimate(estimator, state, answers, answered, p)
            total += prob * value @ value
        found = slow.second_moment_exact[k, 0]
        if curve.estimator == "tests.odd_parts:first_half":
            assert np.isnan(found)
        else:
            assert found == pytest.approx(total, rel=1e-9), curve


def test_theory_of_randomised_sharing_is_left_empty_for_other_schemes(blobs):
    curves = [replace(BASE, scheme=name) for name in ("randomised", "optimal", *ODD_SCHEMES)]
    result = example_space.simulate_run(
        blobs, Evaluation(blobs), curves, **SIZES, run=0, theory_for=frozenset(curves)
    )
    of = {
        name: result.theory[..., example_space.THEORY.index(name)] for name in example_space.THEORY
    }
    assert np.isfinite(of["reduction_expected"][0]).all()
    assert np.isnan(of["reduction_expected"][1:]).all()
    assert np.isfinite(of["reduction"]).all()
    assert np.isfinite(of["type1"]).all()
    assert np.isfinite(result.heterogeneity[0]).all()
    assert np.isnan(result.heterogeneity[1:, 2]).all()
    assert np.isfinite(result.heterogeneity[1:, :2]).all()


def test_a_study_of_them_is_run_and_every_figure_and_page_is_drawn(blobs, tmp_path, monkeypatch):
    (tmp_path / "odd.toml").write_text(study_text())
    study = studies.load(tmp_path / "odd.toml")
    monkeypatch.setattr(datasets, "opened", lambda *_, **__: blobs)
    runner._prepared.cache_clear()
    simulate.run(study, out=tmp_path / "results", workers=1)
    runner._prepared.cache_clear()
    folder = Folder(tmp_path / "results")
    write_report(folder)
    page = (folder.path / "report.html").read_text()
    captions = [odd_parts.damped.caption, odd_parts.half_to_owner.caption, odd_parts.ring.caption]
    for words in (*captions, odd_parts.signed.caption, "in blocks", "drifting"):
        assert words in page, words
    for figure in study.figures:
        assert min(imread(folder.figures / f"{figure.name}.png").shape[:2]) > 100


@pytest.mark.parametrize("field", NAMES)
def test_a_digest_knows_the_file_of_a_part(field, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    part = NAMES[field][0].rpartition(":")[2]
    module = f"of_mine_{field}"
    source = f"from tests.odd_parts import {part} as mine\n"
    (tmp_path / f"{module}.py").write_text(source)
    text = study_text().replace(NAMES[field][0], f"{module}:mine")
    (tmp_path / "odd.toml").write_text(text)
    first = studies.load(tmp_path / "odd.toml")
    (tmp_path / f"{module}.py").write_text(source + "# changed\n")
    assert studies.load(tmp_path / "odd.toml").digest != first.digest


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tests.odd_parts:damped", "tests.odd_parts:nobody", "estimator tests.odd_parts:nobody"),
        ("tests.odd_parts:damped", "no_such_module:x", "cannot be imported: ModuleNotFoundError"),
        ("tests.odd_parts:damped", "tests.odd_parts:ring", "must be of the class Estimator"),
        ("tests.odd_parts:ring", "tests.odd_parts:damped", "must be of the class Scheme"),
        ("tests.odd_parts:damped", "memry", "estimator must be one of coded_sum, memory"),
    ],
)
def test_a_part_that_is_none_is_refused_by_name(old, new, message, tmp_path):
    (tmp_path / "odd.toml").write_text(study_text().replace(old, new))
    with pytest.raises(StudyError, match=message):
        studies.load(tmp_path / "odd.toml")


def test_a_registered_part_has_a_name_of_its_own():
    ESTIMATORS.register(odd_parts.damped)
    try:
        assert replace(BASE, estimator="damped").estimator == "damped"
        with pytest.raises(ArgumentError, match="estimator must have a name that is not taken"):
            ESTIMATORS.register(odd_parts.damped)
    finally:
        ESTIMATORS.unregister("damped")
    with pytest.raises(ArgumentError, match="estimator must be one of"):
        replace(BASE, estimator="damped")
