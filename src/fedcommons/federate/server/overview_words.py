"""An overview in words, and as the page gets it."""

from __future__ import annotations

import time
from dataclasses import asdict, fields
from typing import Any

from fedcommons.federate.server import live_round
from fedcommons.federate.server.open_question import OWES
from fedcommons.federate.server.overview import Overview, SiteView
from fedcommons.federate.server.round_marks import mark
from fedcommons.federate.server.round_notes import RoundNote

SILENT = 60.0  # seconds after a deadline: then something is wrong
MOST_HAPPENINGS = 200  # on a page


def doing(site: SiteView, live: dict[str, Any], now: float) -> str:
    """What a site does at this moment, in a few words; `now` in seconds since 1970."""
    if site.quarantined:
        return f"quarantined: {site.quarantined}"
    if not site.present:
        return "has left"
    found = live.get("sites", {}).get(site.site, {})
    outcome = str(found.get("outcome", ""))
    if outcome == OWES and "asked_at" in found:
        late = now - float(found["asked_at"]) - float(found["deadline"])
        return f"owes the answer to round {found['asked_in']}{_late(late)}"
    if outcome == live_round.ASKED:
        passed = (live.get("ended") or now) - float(live["began"])
        late = now - float(live["began"]) - float(live["deadline"])
        return f"has not answered{_late(late) or f', asked {passed:.0f} s ago'}"
    if outcome == "answered" and "seconds" in found:
        return f"answered in {float(found['seconds']):.1f} s"
    return outcome or "not heard of yet"


def _late(seconds: float) -> str:
    return f", {seconds:.0f} s late" if seconds > 0 else ""


def how_it_is(view: Overview, now: float) -> str:
    """Whether it goes on, in a few words."""
    live = view.live
    if view.is_over:
        return f"ended after round {view.round}"
    if view.training is None:
        return "no round of training yet"
    silent = view.seconds_since or 0.0
    if not live or silent > float(live.get("deadline", 0.0)) + SILENT:
        return f"after round {view.round}, nothing heard of the server for {silent:.0f} s"
    if live.get("ended"):
        return f"after the answers of round {live['round']}"
    passed = now - float(live["began"])
    return f"round {live['round']}, {passed:.0f} s of at most {float(live['deadline']):.0f} s"


def as_json(view: Overview, *, rounds: int = 40) -> dict[str, Any]:
    """What a page shows of it: all of the last rounds, and of the others what is drawn."""
    now, metric = time.time(), view.metric
    return {
        "federation": view.federation,
        "training": view.training,
        "state": how_it_is(view, now),
        "is_over": view.is_over,
        "metric": metric,
        "round": view.round,
        "curve": [[note.round, value_of(note, metric)] for note in view.notes],
        "rounds": [{"round": note.round, **note.numbers} for note in view.notes[-rounds:]],
        "sites": [
            {
                **{name: getattr(site, name) for name in SHOWN},
                "doing": doing(site, view.live, now),
                "strip": [[*mark(one), one.outcome] for one in site.notes[-rounds:]],
            }
            for site in view.sites
        ],
        "happenings": [asdict(one) for one in view.happenings[-MOST_HAPPENINGS:]],
    }


SHOWN = tuple(one.name for one in fields(SiteView) if one.name != "notes")


def value_of(note: RoundNote, metric: str | None) -> float | None:
    """The main metric after a round; None if it was not measured."""
    if metric is None:
        return None
    return note.evaluation.pooled.get(metric, note.training.pooled.get(metric))
