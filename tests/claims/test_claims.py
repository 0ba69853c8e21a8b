"""Claims see what is there: evidence made by hand, in favour, against and missing."""

import json
from dataclasses import replace

import numpy as np
import pyarrow
import pytest

from fedcommons import claims
from fedcommons.claims.evidence import SET_AFTER_A_RESULT
from fedcommons.claims.verdicts import FAILS, HOLDS, UNDECIDED
from fedcommons.simulate.run_summaries import SUMMARIES
from fedcommons.simulate.studies import paper
from fedcommons.theory import heterogeneity

RUNS = 100
STUDY = paper()


def summary(curve, rng):
    """Per-run summaries of a curve in a world in which the paper is right."""
    noise = rng.normal(size=RUNS)
    p, c = curve.straggler_prob, curve.proportion
    lopsided = {"iid": 0.0, "dirichlet": 1.0, "single-class": 2.0}[curve.partition]
    loss = lopsided * (1 - c) * (0.02 + p**2 / 5) + p / 50 - curve.copies / 1000
    before = {"iid": 0.05, "dirichlet": 0.45, "single-class": 0.9}[curve.partition]
    args = dict(n_clients=10, proportion=c, copies=curve.copies)
    after = float(heterogeneity.theorem1(before, class_size=30, **args))
    if curve.warm or curve.estimator == "wait_for_all":
        loss, noise = 0.0, 0 * noise
    moment = 1 + p / (1 - p) * (1 + lopsided) * (1 - c * curve.copies / (1 + curve.copies))
    values = dict.fromkeys(SUMMARIES, np.zeros(RUNS))
    return values | {
        "early_accuracy": 0.7 - loss + 1e-4 * noise,
        "accuracy_10": 0.75 - loss + 1e-4 * noise,
        "accuracy_20": 0.77 - loss / 2 + 1e-4 * noise,
        "final_accuracy": 0.79 - loss / 10 + 1e-5 * noise,
        "initial_moment_exact": moment + 1e-3 * noise,
        "initial_norm2": np.ones(RUNS),
        "heterogeneity_before": np.full(RUNS, before),
        "heterogeneity_after": after * (1 + 1e-3 * noise),
        "heterogeneity_expected": np.full(RUNS, after),
        "projection": 1 + 1e-2 * noise,
        "moment_ratio": 1 + 1e-2 * noise,
        "early_moment": moment + 1e-2 * noise,
        "late": (0.77 - loss / 2 + 1e-4 * noise)[:, None] * np.ones(41),
        "type2_first": np.full(RUNS, -2.0),
        "type2_last": -1 + 0.01 * noise,
        "initial_reduction": c + 1e-3 * noise,
        "initial_bound": c + 1e-3 * noise,
    }


def table(changes=lambda curve, values: values, study=STUDY):
    rng = np.random.default_rng(0)
    columns = {name: [] for name in SUMMARIES}
    late = []
    for curve in study.curves:
        values = changes(curve, summary(curve, rng))
        for name in SUMMARIES:
            columns[name].append(values[name])
        late.append(values["late"])
    return pyarrow.table(
        {
            "run": np.repeat(np.arange(RUNS), len(study.curves)),
            "curve": [c.key for c in study.curves] * RUNS,
            **{name: np.stack(v, axis=1).ravel() for name, v in columns.items()},
            "late_accuracies": pyarrow.FixedSizeListArray.from_arrays(
                pyarrow.array(np.stack(late, axis=1).ravel()), 41
            ),
        }
    )


def verdicts(changes=lambda curve, values: values):
    return {claim.id: claim.verdict for claim in claims.check_all(STUDY, table(changes))}


def test_where_the_paper_is_right_every_claim_holds():
    found = verdicts()
    assert len(found) == len(claims.CLAIMS)
    assert {name for name, verdict in found.items() if verdict != HOLDS} == set()


@pytest.mark.parametrize(
    ("claim", "statistic", "change"),
    [
        ("speed-c", "early_accuracy", lambda c, x: x - (0.1 if c.proportion == 0.5 else 0)),
        ("final-differs", "final_accuracy", lambda c, x: x - (0.1 if c.proportion == 0.5 else 0)),
        ("final-slight-half", "final_accuracy", lambda c, x: x + c.proportion),
        ("final-slight-quarter", "final_accuracy", lambda c, x: x + c.proportion),
        ("moment-c", "initial_moment_exact", lambda c, x: x * (1 + 5 * c.proportion)),
        ("speed-moment", "initial_moment_exact", lambda c, x: x * (1 + 5 * c.proportion)),
        ("interpolation", "early_accuracy", lambda c, x: x - 0.3 * (c.partition == "iid")),
        ("single-class-speed", "early_accuracy", lambda c, x: x + 2 * (c.partition[0] == "s")),
        ("single-class-final", "final_accuracy", lambda c, x: x + 2 * (c.partition[0] == "s")),
        ("gain-p", "early_accuracy", lambda c, x: x - c.straggler_prob * c.proportion),
        ("reduction-p", "initial_moment_exact", lambda c, x: x ** (1 - c.straggler_prob)),
        ("theorem1", "heterogeneity_after", lambda c, x: 1.1 * x),
        ("theorem1-counts", "heterogeneity_expected", lambda c, x: 1.1 * x),
        ("theorem1-factor", "heterogeneity_after", lambda c, x: 2 * x),
        ("unbiased", "projection", lambda c, x: x + 0.2 * (c.partition == "dirichlet")),
        ("theorem2", "theorem2_violations", lambda c, x: x + (np.arange(RUNS) == 7)),
        ("assumption1", "assumption1_violations", lambda c, x: x + (np.arange(RUNS) == 7)),
        ("remark", "remark_violations", lambda c, x: x + (np.arange(RUNS) == 7)),
        ("type1-positive", "type1_not_positive", lambda c, x: x + (np.arange(RUNS) == 7)),
        ("type2-negative", "type2_not_negative", lambda c, x: x + (np.arange(RUNS) == 7)),
        ("type2-shrinks", "type2_last", lambda c, x: 3 * x),
        ("fixed-dc-bound", "initial_bound", lambda c, x: -x),
        ("fixed-dc-exact", "initial_reduction", lambda c, x: -x),
        ("ceiling", "late", lambda c, x: x - 0.003 * c.warm * (np.arange(41) == 1)),
        ("speed-d", "early_accuracy", lambda c, x: x - 0.1 * (c.copies == 9)),
        ("mirrors-iid", "final_accuracy", lambda c, x: x - 0.1 * (c.partition == "iid")),
        ("single-class-needs-more", "early_accuracy", lambda c, x: x + 2 * (c.partition[0] == "s")),
        ("moment-plotted", "early_moment", lambda c, x: x * (1 + 5 * c.proportion)),
        ("moment-exact", "moment_ratio", lambda c, x: x + 0.2),
        ("remark-tends", "remark_violations", lambda c, x: x + 40),
        ("remark-bound", "remark_bound_violations", lambda c, x: x + (np.arange(RUNS) == 7)),
    ],
)
def test_evidence_against_a_claim_is_seen(claim, statistic, change):
    def changed(curve, values):
        return values | {statistic: change(curve, values[statistic])}

    found = verdicts(changed)
    assert found[claim] == FAILS, found


def test_too_much_noise_leaves_claims_undecided():
    rng = np.random.default_rng(2)

    def blurred(_, values):
        return (
            values
            | {
                name: values[name] + 10 * rng.normal(size=RUNS)
                for name in ("early_accuracy", "final_accuracy", "projection")
            }
            | {"late": values["late"] + 10 * rng.normal(size=(RUNS, 41))}
        )

    found = verdicts(blurred)
    for name in ("speed-c", "final-differs", "unbiased", "ceiling", "gain-p"):
        assert found[name] == UNDECIDED


def test_claims_without_their_curves_are_left_out():
    part = STUDY.only(["figure3"])
    found = claims.check_all(part, table(study=part))
    assert [claim.id for claim in found] == ["type1-positive", "type2-negative", "type2-shrinks"]


def test_a_difference_just_inside_what_counts_as_equal_is_not_refuted():
    def near(curve, values):
        return values | {"late": values["late"] - 0.0015 * curve.warm}

    assert verdicts(near)["ceiling"] == HOLDS


@pytest.mark.parametrize(
    ("left", "half", "quarter"), [(0.55, FAILS, FAILS), (0.4, HOLDS, FAILS), (0.2, HOLDS, HOLDS)]
)
def test_slight_is_judged_by_what_is_left_of_the_gain_in_speed(left, half, quarter):
    def gains(curve, values):
        early = 0.1 * curve.proportion
        return values | {
            "early_accuracy": 0.5 + early + 1e-6 * np.arange(RUNS),
            "final_accuracy": 0.5 + left * early + 1e-6 * np.arange(RUNS) ** 1.5,
        }

    found = verdicts(gains)
    assert (found["final-slight-half"], found["final-slight-quarter"]) == (half, quarter)


def test_claims_on_rounds_that_were_not_run_are_left_out():
    def short(_, values):
        return values | {"early_accuracy": np.full(RUNS, np.nan)}

    assert not {"speed-c", "gain-p", "interpolation"} & set(verdicts(short))


def test_claims_on_the_end_of_training_are_left_out_of_a_shorter_or_longer_one():
    ends = {
        "final-differs", "final-slight-half", "final-slight-quarter", "mirrors-iid",
        "single-class-final", "remark-tends", "type2-shrinks",
    }  # fmt: skip
    everything = {claim.id for claim in claims.check_all(STUDY, table())}
    for rounds in (3, 60):
        found = {claim.id for claim in claims.check_all(replace(STUDY, rounds=rounds), table())}
        assert everything - found == ends


def test_claims_set_after_a_result_say_so():
    found = {claim.id: claim.fixed_beforehand for claim in claims.check_all(STUDY, table())}
    assert {name for name, beforehand in found.items() if not beforehand} == SET_AFTER_A_RESULT


def test_claims_are_valid_json_even_for_one_run():
    lonely = table().slice(0, len(STUDY.curves))
    for claim in claims.check_all(STUDY, lonely):
        json.dumps(claim.as_dict(), allow_nan=False)


def test_a_claim_says_all_that_is_needed_to_judge_it():
    for claim in claims.check_all(STUDY, table()):
        content = claim.as_dict()
        assert set(content) == {
            "id", "claim", "where", "statistic", "fixed_beforehand", "verdict", "evidence",
            "components",
        }  # fmt: skip
        assert all(content[name] for name in content if name != "fixed_beforehand")
        for part in content["components"]:
            assert set(part) == {"name", "difference", "sem", "half", "z"}


def test_a_study_that_is_not_the_papers_has_no_claims():
    assert claims.check_all(replace(STUDY, name="mine"), table(study=STUDY)) == []
