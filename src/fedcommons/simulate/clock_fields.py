"""The fields of a curve under a clock: how long the server waits, and what clients do meanwhile."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fedcommons import checks, policies, work
from fedcommons.simulate.settings import ADAPTIVE, Setting, Values, one_of

if TYPE_CHECKING:
    from fedcommons.simulate.curves import Curve


def _policy(_name: str, value: object) -> None:
    if value != "":
        policies.parse(str(value))


def clocked(values: Values) -> bool:
    """Whether it is a clock that says who is missing, and when."""
    return bool(values["policy"])


def _has_deadline(values: Values) -> bool:
    fits = clocked(values) and work.parse(values["work"]).follows_speed
    return values["policy"] == "deadline" or fits


def _may_correct(values: Values) -> bool:
    shares = values["proportion"] > 0 and values["copies"] > 0
    return clocked(values) and work.parse(values["work"]).in_chunks and shares


def deadline_words(curve: Curve) -> str:
    """How long the server waits, or which time the work is cut to."""
    if not _has_deadline(curve.values()):
        return ""
    return "adaptive deadline" if curve.deadline is None else f"T = {curve.deadline:g} s"


CLOCK: dict[str, Setting] = {
    # Whom the server waits for under a clock; empty for rounds.
    "policy": Setting(
        "policy",
        _policy,
        rank=11,
        label=lambda curve: "" if curve.policy == "deadline" else curve.policy.replace(":", " "),
        tells=lambda curve: curve.policy.replace(":", " "),
        caption=lambda curve: (
            "" if curve.policy in ("", "deadline") else f"waiting for {curve.policy}"
        ),
    ),
    # Seconds that a tick lasts at most, or that work is cut to fit; None for one that adapts.
    "deadline": Setting(
        "deadline",
        lambda name, value: None if value is None else checks.positive(name, value),
        _has_deadline,
        "the policy deadline, or work that follows a client’s speed",
        word_for_none=ADAPTIVE,
        rank=12,
        label=deadline_words,
        tells=deadline_words,
        caption=deadline_words,
    ),
    # What becomes of an answer that comes after its tick.
    "late": Setting(
        "late",
        partial(one_of, policies.LATE),
        lambda values: clocked(values) and values["policy"] != "all",
        "a policy that does not wait for all",
        rank=13,
        label=lambda curve: "late remembered" if curve.late == "remember" else "",
        tells=lambda curve: f"late answers {curve.late}ed",
        caption=lambda curve: "late answers count" if curve.late == "remember" else "",
    ),
    # How much of its data a client works on when it is asked.
    "work": Setting(
        "work",
        lambda _name, value: work.parse(str(value)),
        clocked,
        "a clock",
        rank=14,
        label=lambda curve: curve.work,
        tells=lambda curve: curve.work,
        caption=lambda curve: "" if curve.work == "full" else f"work {curve.work}",
    ),
    # Whether present holders of an absent owner's shared examples correct what is remembered of it.
    "corrected": Setting(
        "correct",
        checks.boolean,
        _may_correct,
        "work in chunks with examples to share",
        rank=15,
        label=lambda curve: "corrected" if curve.corrected else "",
        tells=lambda curve: "corrected" if curve.corrected else "uncorrected",
        caption=lambda curve: (
            "holders of an absent owner’s shared examples correct its chunks"
            if curve.corrected
            else ""
        ),
    ),
    # Whether clients are away when the clock says so; otherwise they never are.
    "away": Setting(
        "away",
        checks.boolean,
        clocked,
        "a clock",
        rank=16,
        label=lambda curve: "" if curve.away else "nobody away",
        tells=lambda curve: "with absences" if curve.away else "nobody away",
        caption=lambda curve: "" if curve.away else "nobody is ever away",
    ),
    # Whether the server knows how often each client is late, and does not estimate it.
    "prob_from_law": Setting(
        "p_law",
        checks.boolean,
        clocked,
        "a clock",
        rank=39,
        label=lambda curve: "p of the law" if curve.prob_from_law else "",
        tells=lambda curve: "p of the law" if curve.prob_from_law else "estimated p",
        caption=lambda curve: "p is the law’s" if curve.prob_from_law else "",
    ),
}
