"""The table [clock], the files that it names, and what is refused of both."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from fedcommons.delays import Law, Recorded, where_away
from fedcommons.errors import ArgumentError, DataError, StudyError
from fedcommons.simulate import definition, studies, timing
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.timing import Away, Timing

GRID = {"partition": "iid", "policy": "all"}


def study(clock, grid=GRID, **settings):
    return studies.parse({"name": "s", "clock": clock, "grid": grid, **settings})


def recording(path, sites, asked, took):
    table = pyarrow.table({"site": sites, "asked_at": asked, "took": took})
    pyarrow.parquet.write_table(table, path)
    return str(path)


def test_the_published_table_is_the_default():
    law = Timing(10.0).law(25, 100.0, seed=0, run=0)
    assert isinstance(law, Law)
    assert law.links() == pytest.approx([0.26] * 25)
    assert law.mean(np.full(25, 25e6))[0] == pytest.approx(1.5 + 0.26)


def test_laws_by_name():
    law = Timing(1.0, delays="lognormal", rate=8.0, rate_spread=1.0, link=0.1).law(
        4, 1.0, seed=0, run=0
    )
    assert law.service == "lognormal"
    assert (np.diff(law.rate) < 0).all()  # the fastest first
    assert np.log(law.rate / 8).mean() == pytest.approx(0)
    stalls = Timing(1.0, delays="stalls").law(3, 1.0, seed=0, run=0)
    assert stalls.mean(np.full(3, 1e9)) == pytest.approx([5.0] * 3)


def test_a_table_is_read_by_the_sites_names(tmp_path):
    path = tmp_path / "sites.csv"
    path.write_text("site,examples,link,away,away seconds\nb,10,0.5,0,0\na,20,0.1,0.5,30\n")
    clock = Timing(100.0, str(path)).opened(tmp_path)
    law = clock.law(2, 7.0, seed=0, run=0, sites=("a", "b"))
    assert law.rate.tolist() == [140, 70]
    assert law.links().tolist() == [0.1, 0.5]
    gone = clock.absences(2, np.zeros(2, int), seed=0, run=0, sites=("a", "b"))
    away = np.array([where_away(gone, 2, t) for t in np.linspace(0, 100, 400)])
    assert 0 < away[:, 0].mean() < 1
    assert not away[:, 1].any()
    with pytest.raises(ArgumentError, match="a line for each of the 3 clients, got 2"):
        clock.law(3, 7.0, seed=0, run=0)
    bad = tmp_path / "bad.csv"
    bad.write_text("site,examples\na,1\nb,0\n")
    with pytest.raises(DataError, match=r"line 3 \(b\): examples must be > 0, got 0"):
        Timing(100.0, str(bad)).opened(tmp_path).law(2, 7.0, seed=0, run=0)
    with pytest.raises(DataError, match="have changed"):
        Timing(100.0, str(bad), digest="0" * 64).law(2, 7.0, seed=0, run=0)


def test_a_recording_is_played_from_a_random_job_on(tmp_path):
    path = recording(tmp_path / "r.parquet", ["b", "a", "a"], [0.0, 1.0, 5.0], [2.0, 3.0, 4.0])
    clock = Timing(100.0, path).opened(tmp_path)
    laws = [clock.law(2, 1.0, seed=0, run=run) for run in range(20)]
    assert all(isinstance(law, Recorded) for law in laws)
    assert {int(law.first[0]) for law in laws} == {0, 1}
    assert laws[0].took[0].tolist() == [3, 4]  # in the order of the names


def test_recordings_that_cannot_be_are_refused(tmp_path):
    back = recording(tmp_path / "back.parquet", ["a", "a"], [5.0, 1.0], [1.0, 1.0])
    with pytest.raises(DataError, match="row 2 of a was asked at 1, after a later one"):
        Timing(9.0, back).opened(tmp_path).law(1, 1.0, seed=0, run=0)
    some = recording(tmp_path / "some.parquet", ["a", "a"], [1.0, 2.0], [1.0, 1.0])
    clock = Timing(9.0, some).opened(tmp_path)
    with pytest.raises(ArgumentError, match="got none of 'b' in the recording"):
        clock.law(2, 1.0, seed=0, run=0, sites=("a", "b"))
    with pytest.raises(ArgumentError, match="a recording of the 2 clients, got 1 sites"):
        clock.law(2, 1.0, seed=0, run=0)
    with pytest.raises(ArgumentError, match="spread must be left out with a recording"):
        Timing(9.0, some, spread=0.5)
    zero = recording(tmp_path / "zero.parquet", ["a"], [1.0], [0.0])
    with pytest.raises(DataError, match="took must be > 0"):
        Timing(9.0, zero).law(1, 1.0, seed=0, run=0)
    with pytest.raises(DataError, match="cannot be read"):
        Timing(9.0, "nowhere.csv").opened(tmp_path)


def test_who_is_away_by_class():
    away = Away((0.8, 0.1), 50.0, "class")
    share, seconds = away.of_clients(3, np.array([1, 0, 1]))
    assert share.tolist() == [0.1, 0.8, 0.1]
    assert seconds.tolist() == [50, 50, 50]
    with pytest.raises(ArgumentError, match="one for each of the 3 classes, got 2"):
        away.of_clients(2, np.array([2, 0]))


def test_a_clock_makes_lines_with_policies_and_keeps_its_record():
    found = study(
        {"seconds": 50, "target": 0.9, "away": {"share": [0.8, 0.1], "seconds": 80, "by": "class"}}
    )
    (curve,) = found.curves
    assert (curve.policy, curve.decay) == ("all", 1.0)
    again = definition.from_dict(found.as_dict())
    assert again == found
    assert again.digest == found.digest
    assert study({"seconds": 60}).digest != study({"seconds": 50}).digest


def test_work_brings_its_estimator_and_late_has_a_use_or_none():
    found = study(
        {"seconds": 50},
        grid={
            "partition": "iid", "policy": "deadline", "deadline": [2.0, "adaptive"],
            "work": ["full", "chunk", "sagachunk", "anytime"],
            "late": ["remember", "discard"], "estimator": ["memory", "coded_sum"], "p": "law",
        },
    )  # fmt: skip
    pairs = {(c.work, c.estimator, c.late) for c in found.curves}
    assert ("chunk", "latest", "remember") in pairs
    assert ("anytime", "coded_sum", "discard") in pairs
    assert not {late for work, _, late in pairs if work == "anytime"} - {"discard"}
    assert {c.deadline for c in found.curves} == {2.0, None}
    assert all(c.prob_from_law for c in found.curves)


def test_work_that_fits_is_chosen_by_the_model():
    grid = {"partition": "iid", "policy": "deadline", "work": "fits", "model": ["softmax", "mlp"]}
    found = study({"seconds": 50}, {**grid, "estimator": "coded_sum"})
    chosen = {(c.model, c.work, c.estimator) for c in found.curves}
    assert chosen == {("softmax", "chunk", "latest"), ("mlp", "sagachunk", "memory")}


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        ({}, "seconds must be given"),
        ({"seconds": 0}, "seconds must be > 0"),
        ({"seconds": 1, "delays": "gamma"}, "delays must be one of coded-padded-fl"),
        ({"seconds": 1, "delays": "pareto"}, "rate must be given"),
        ({"seconds": 1, "rate": 0}, "rate must be > 0"),
        ({"seconds": 1, "rate": [1, 0]}, "rate must be > 0"),
        ({"seconds": 1, "target": float("nan")}, "target must be finite"),
        ({"seconds": 1, "away": {"share": 0.3}}, "away.seconds must be given"),
        ({"seconds": 1, "away": {"share": 1, "seconds": 3}}, "away.share must be in"),
        ({"seconds": 1, "away": {"share": 0.1, "seconds": 3, "by": "x"}}, "away.by must be"),
        ({"seconds": 1, "sped": 2}, "did you mean 'spread'"),
        ({"seconds": 1, "tail": 1}, "tail must be > 1"),
        ({"seconds": 1, "tail": "long"}, "tail must be a real number"),
        ({"seconds": "long"}, "seconds must be a real number"),
        ({"seconds": 1, "rate": "fast"}, "rate must be a real number"),
        ({"seconds": 1, "delays": 3}, "delays must be one of"),
        ({"seconds": 1, "away": 0.3}, "away must be a table of share and seconds"),
    ],
)
def test_what_a_clock_cannot_be_is_named(clock, words):
    with pytest.raises(StudyError, match=words):
        study(clock)


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ({"policy": "fastest:11"}, "policy must wait for at most the 10 clients, got fastest:11"),
        ({"policy": "fastest:0"}, "policy must be"),
        ({"work": "half"}, "work must be one of"),
        ({"batch_size": 4}, 'work = "mini:4" asks for'),
        ({"policy": "deadline", "deadline": -1.0}, "deadline must be > 0"),
        ({"policy": "fastest:3", "estimator": "wait_for_all"}, "policy must be all"),
        ({"algorithm": "coded_fedavg", "local_steps": 3, "work": "mini:4"}, "work must be full"),
    ],
)
def test_lines_that_a_clock_cannot_time_are_named(grid, words):
    with pytest.raises((StudyError, ArgumentError), match=words):
        study({"seconds": 9}, {**GRID, **grid})


def test_policies_need_a_clock_and_a_clock_policies():
    with pytest.raises(
        ArgumentError, match=r"exactly if the study has a \[clock\], got policy all"
    ):
        studies.parse({"name": "s", "grid": GRID})
    with pytest.raises(ArgumentError, match="late must be discard for an estimator"):
        Curve("iid", policy="deadline", late="remember")
    with pytest.raises(ArgumentError, match="must go with rounds"):
        Curve("iid", policy="all", straggler_prob=0.3)
    with pytest.raises(ArgumentError, match="must not need p before training"):
        Curve("iid", policy="all", code="reliability-split", proportion=0.5, copies=2)
    with pytest.raises(ArgumentError, match=r"target must be in \(0, 1\] for an accuracy, got 1.5"):
        study({"seconds": 9, "target": 1.5}, {"partition": "iid"})
    with pytest.raises(ArgumentError, match="work must be full for the loss cox"):
        study({"seconds": 9}, {"partition": "iid", "work": "mini:4"}, loss="cox")
    assert timing.from_dict(None) is None
    for content in ([1], {"seconds": 1, "digest": 3}, {"seconds": 1, "nothing": 2}):
        with pytest.raises((ArgumentError, TypeError)):
            timing.from_dict(content)
