"""Claims about seconds see what is there: hand-made times, in favour and against."""

import numpy as np
import pyarrow
import pytest

from fedcommons import claims
from fedcommons.claims import by_the_clock
from fedcommons.claims.verdicts import FAILS, HOLDS, UNDECIDED
from fedcommons.simulate.run_summaries import SUMMARIES
from fedcommons.simulate.studies import paper_by_the_clock
from fedcommons.simulate.times import SECONDS

RUNS = 8
STUDY = paper_by_the_clock()
NEVER = np.inf
GOOD = {
    ("nobody-away", by_the_clock.CHUNKS): 80.0,
    ("nobody-away", by_the_clock.SIMPLE): 140.0,
    ("nobody-away", by_the_clock.LATE): 250.0,
    ("nobody-away", by_the_clock.FULL): NEVER,
    ("owners-away", by_the_clock.CORRECTED): 110.0,
    ("owners-away", by_the_clock.CHUNKS): 160.0,
    ("owners-away", by_the_clock.SIMPLE): NEVER,
}
ENDS = {by_the_clock.LATE: 0.9, by_the_clock.FULL: 0.8}


def verdicts(changes=(), ends=ENDS, study=STUDY):
    rng = np.random.default_rng(0)
    of_curve = {
        line.curve: ((GOOD | dict(changes))[figure.name, line.label], ends.get(line.label, 0.89))
        for figure in STUDY.figures
        for line in figure.lines
    }
    noise = 1 + 0.01 * rng.normal(size=(RUNS, len(study.curves)))
    seconds, end = (noise * [of_curve[c][k] for c in study.curves] for k in (0, 1))
    zeros = np.zeros(noise.size)
    table = pyarrow.table(
        {
            **dict.fromkeys(SUMMARIES, zeros),
            "final_accuracy": end.ravel(),
            SECONDS: seconds.ravel(),
            "late_accuracies": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(zeros), 1),
        }
    )
    return {claim.id: claim.verdict for claim in claims.check_all(study, table)}


def test_where_this_project_is_right_every_claim_about_seconds_holds():
    assert verdicts() == dict.fromkeys(
        ("clock-late", "clock-chunks", "clock-averages", "clock-sharing"), HOLDS
    )


@pytest.mark.parametrize(
    ("claim", "figure", "label", "seconds"),
    [
        ("clock-chunks", "nobody-away", by_the_clock.CHUNKS, NEVER),
        ("clock-chunks", "nobody-away", by_the_clock.SIMPLE, 70.0),
        ("clock-averages", "owners-away", by_the_clock.SIMPLE, 190.0),
        ("clock-averages", "owners-away", by_the_clock.CORRECTED, NEVER),
        ("clock-sharing", "owners-away", by_the_clock.CHUNKS, 100.0),
        ("clock-sharing", "owners-away", by_the_clock.CORRECTED, NEVER),
    ],
)
def test_times_against_a_claim_are_seen(claim, figure, label, seconds):
    assert verdicts({(figure, label): seconds})[claim] == FAILS


def test_a_policy_that_never_gets_there_counts_with_the_time_that_it_had():
    """Had ours taken more than half of the budget, nothing would be known of twice as fast."""
    slow = {
        ("owners-away", by_the_clock.CORRECTED): 200.0,
        ("owners-away", by_the_clock.CHUNKS): NEVER,
    }
    assert verdicts(slow)["clock-averages"] == UNDECIDED
    assert verdicts(slow)["clock-sharing"] == HOLDS


def test_accuracies_against_late_answers_are_seen():
    assert verdicts(ends={by_the_clock.LATE: 0.7, by_the_clock.FULL: 0.8})["clock-late"] == FAILS


def test_a_claim_whose_lines_were_not_run_is_left_out():
    assert set(verdicts(study=STUDY.only(["owners-away"]))) == {"clock-averages", "clock-sharing"}
