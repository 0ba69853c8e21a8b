"""Studies whose clients are the sites that the data come from, from the file to the results."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedcommons import datasets, simulate
from fedcommons.errors import DataError, StudyError
from fedcommons.figures.report import write_report
from fedcommons.simulate import (
    batched,
    definition,
    draws,
    example_space,
    feasible,
    plain_engine,
    runner,
    studies,
)
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.scoring import Evaluation
from fedcommons.theory import heterogeneity

RNG = np.random.default_rng(0)
SITES = np.repeat([0, 1, 2], [30, 12, 4])
LABELS = np.concatenate([RNG.integers(0, 3, 42), [2, 2, 2, 2]])  # the last site has one class


@pytest.fixture(scope="module")
def clinics():
    order = RNG.permutation(46)
    x = (RNG.normal(size=(46, 5)) + LABELS[:, None])[order].astype(np.float32)
    y, site = LABELS[order], SITES[order]
    return datasets.Dataset(
        "clinics", x, y, x, y, sites=("a", "b", "c"), site_train=site, site_test=site
    )


@pytest.fixture
def folder(clinics, tmp_path):
    datasets.save(clinics, tmp_path / "clinics.npz")
    return tmp_path


def test_sites_keep_their_examples_in_every_partition_of_a_run(clinics):
    data = draws.training_set(clinics, None, seed=0, run=3)
    by_row = {tuple(x): s for x, s in zip(clinics.x_train, clinics.site_train, strict=True)}
    assert [by_row[tuple(x)] for x in data.inputs] == data.sites.tolist()
    curves = [Curve("site", 0.0, 0.5, 0.4, 2), Curve("iid", 0.0, 0.5, 0.4, 2)]
    natural, dealt = draws.share_all(curves, data, 3, seed=0, run=3)
    assert np.array_equal(natural.owner, data.sites)
    assert np.bincount(natural.owner).tolist() == [30, 12, 4]
    assert np.bincount(dealt.owner).max() == 16
    before, _, expected = draws.heterogeneity_of(natural, data.labels, curves[0])
    counts = np.stack([np.bincount(data.labels[data.sites == s], minlength=3) for s in range(3)])
    X = counts / counts.sum(axis=0)
    assert before == pytest.approx(((X - 1 / 3) ** 2).sum(axis=0).mean())
    mask = natural.shareable
    offered = np.stack(
        [np.bincount(data.labels[mask & (data.sites == s)], minlength=3) for s in range(3)]
    )
    assert expected == pytest.approx(heterogeneity.expected(counts, offered, 2).mean())


@pytest.mark.parametrize("scheme", ["randomised", "per-client", "optimal"])
def test_all_engines_train_the_same_model(clinics, scheme):
    curves = [
        Curve("site", 0.0, 0.4, 0.5, 1, scheme=scheme),
        Curve("site", 0.0, 0.4, 0.5, 2, "owner-corrected", "memory", warm=True, scheme=scheme),
    ]
    common = {"n_clients": 3, "class_size": None, "n_rounds": 6, "seed": 1}
    plain = plain_engine.simulate_run(clinics, runner._softmax_task, curves, **common, run=0)
    fast = example_space.simulate_run(clinics, Evaluation(clinics), curves, **common, run=0)
    (block,) = batched.simulate_block(clinics, curves, **common, runs=[0])
    for other in (fast, block):
        assert np.abs(other.correct - plain.correct).max() <= 1  # of 46: a tie may be rounded
        assert np.allclose(other.second_moment, plain.second_moment, rtol=1e-3)


STUDY = """
name = "clinics"
dataset = "clinics.npz"
rounds = 4
runs = 2
[[grid]]
partition = ["site", "iid"]
p = 0.3
c = [0.0, 0.5]
d = 2
estimator = ["coded_sum", "memory"]
"""


def test_a_study_takes_its_clients_from_the_data_and_runs_to_its_page(folder):
    (folder / "s.toml").write_text(STUDY)
    study = studies.load(folder / "s.toml")
    assert (study.clients, study.class_size) == (3, None)
    found = simulate.run(study, out=folder / "out", workers=1)
    assert set(found.curves["setting"].to_pylist()) == {"site", "iid"}
    record = json.loads((folder / "out" / "run.json").read_text())
    assert record["data"]["sites"]["b"] == {"train": 12, "test": 12}
    assert Folder(folder / "out").study() == study
    write_report(Folder(folder / "out"))
    assert "3 sites, training + test examples: a 30" in (folder / "out/report.html").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("runs = 2\nclients = 4", "clients must be the 3 sites .*, or be left out, got 4"),
        ("runs = 2\nclass_size = 2", 'class_size must be "all" with partition site'),
    ],
)
def test_what_contradicts_the_sites_is_refused(folder, change, message):
    (folder / "s.toml").write_text(STUDY.replace("runs = 2", change))
    with pytest.raises(StudyError, match=message):
        simulate.run(folder / "s.toml", workers=1)


def test_data_without_sites_are_refused(folder, clinics):
    bare = replace(clinics, sites=(), site_train=None, site_test=None)
    datasets.save(bare, folder / "clinics.npz")
    (folder / "s.toml").write_text(STUDY.replace("d = 2", "d = 0"))
    with pytest.raises(StudyError, match=r"partition site must come with data .* site_column"):
        simulate.run(folder / "s.toml", workers=1)


TABLE = """
name = "patients"
dataset = "patients.csv"
rounds = 3
runs = 1
[data]
label = "ill"
site_column = "clinic"
test_part = 0.25
scale = "standard"
missing = "mean"
[[grid]]
partition = "site"
p = 0.3
"""


@pytest.fixture
def patients(tmp_path):
    rows = [
        f"{'north' if k < 30 else 'south'},{30 + k},{['low', 'high', ''][k % 3]},{'yn'[k % 2]}"
        for k in range(50)
    ]
    (tmp_path / "patients.csv").write_text("\n".join(["clinic,age,pressure,ill", *rows]))
    (tmp_path / "s.toml").write_text(TABLE)
    return tmp_path


def test_a_table_is_read_as_the_study_file_says(patients):
    study = studies.load(patients / "s.toml")
    data = runner.study_data(study)
    assert data.sites == ("north", "south")
    assert len(data.y_test) == 13  # a quarter of 30 and of 20, rounded
    assert data.columns == ("age", "pressure=high", "pressure=low")
    assert definition.from_dict(json.loads(json.dumps(study.as_dict()))) == study


def test_a_natural_partition_without_sites_says_what_to_do_whatever_else_the_study_asks(patients):
    text = TABLE.replace('site_column = "clinic"\n', "") + "c = 0.2\nd = 2\n"
    (patients / "s.toml").write_text(text)
    study = studies.load(patients / "s.toml")
    with pytest.raises(StudyError, match=r"name the site of each example.* give site_column"):
        feasible.check_fits(study, runner.study_data(study))


def test_every_rule_of_reading_is_part_of_the_digest(patients):
    digests = {studies.load(patients / "s.toml").digest}
    for old, new in (
        ("0.25", "0.3"),
        ('scale = "standard"', 'scale = "none"'),
        ('missing = "mean"', 'missing = "drop"'),
        ('missing = "mean"', 'missing = "mean"\nleave_out = ["age"]'),
        ('missing = "mean"', 'missing = "mean"\ncategories = ["age"]'),
    ):
        (patients / "s.toml").write_text(TABLE.replace(old, new))
        digests.add(studies.load(patients / "s.toml").digest)
    assert len(digests) == 6


def test_another_file_is_read_by_the_same_rules(patients):
    text = (patients / "patients.csv").read_text().replace("south", "west")
    (patients / "other.csv").write_text(text)
    study = studies.load(patients / "s.toml", data=str(patients / "other.csv"))
    assert runner.study_data(study).sites == ("north", "west")


def test_tuning_holds_out_a_sixth_of_each_class_at_each_site(clinics, folder):
    (folder / "s.toml").write_text(STUDY)
    study = replace(studies.load(folder / "s.toml"), pool="tuning")
    data = runner.study_data(study)
    for site, label in {*zip(SITES.tolist(), LABELS.tolist(), strict=True)}:
        n = ((clinics.site_train == site) & (clinics.y_train == label)).sum()
        held_out = (data.site_test == site) & (data.y_test == label)
        assert held_out.sum() == n // 6


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("site_column", "site_colum", StudyError, "unknown key 'site_colum' in .data.*site_column"),
        ('"clinic"', '"klinik"', DataError, "must have the site_column 'klinik'"),
        ("0.25", "1.5", StudyError, r"\[data\]: test_part must be in \[0, 1\], got 1.5"),
        ('missing = "mean"', "", DataError, "column 'pressure' must have no missing values"),
        ("test_part = 0.25", "", StudyError, "must have test examples, got none; .*test_part"),
        ("[data]", "[[data]]", StudyError, r"data must be written as \[data\]"),
    ],
)
def test_what_is_wrong_with_the_data_is_said(patients, old, new, error, message):
    (patients / "s.toml").write_text(TABLE.replace(old, new))
    with pytest.raises(error, match=message):
        simulate.run(patients / "s.toml", workers=1)


def test_inputs_on_very_different_scales_are_warned_of(patients, caplog):
    text = TABLE.replace('scale = "standard"', "").replace("30 + k", "")
    (patients / "patients.csv").write_text(
        "clinic,area,smoothness,ill\n"
        + "".join(f"{'ab'[k % 2]},{600 + k},0.{k},{'yn'[k % 3 == 0]}\n" for k in range(1, 40))
    )
    (patients / "s.toml").write_text(text)
    simulate.run(patients / "s.toml", workers=1)
    assert "very different scales: area is about 619" in caplog.text
    assert 'scale = "standard"' in caplog.text
