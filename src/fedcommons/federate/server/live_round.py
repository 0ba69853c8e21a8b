"""A round while it goes on, in a file for whoever watches.

Nothing rests on it: it is not forced to the disk, and what cannot be written is not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.server.open_question import OpenQuestion

NAME = "now.json"  # in the folder of the training
EVERY = 0.2  # seconds between two writings, while replies come
ASKED = "asked"  # and not heard of yet


class LiveRound:
    """What became of each site so far in the round that goes on."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._now: dict[str, Any] = {"round": 0, "sites": {}}
        self._written = 0.0
        self._goes_on = False

    def begin(
        self,
        round_number: int,
        seconds: float,
        commit: Commit,
        outcomes: Sequence[str],
        owed: Mapping[str, OpenQuestion],
    ) -> None:
        """Those were asked whose outcome would be "answered"; what is owed is by identity."""
        sites = self._now["sites"] = {}
        for member, here, outcome in zip(commit.members, commit.present, outcomes, strict=True):
            if here:
                state = ASKED if outcome == "answered" else outcome
                sites[member.site] = {"outcome": state, **_asked(owed.get(member.identity))}
        self._now |= {"round": round_number, "began": time.time(), "deadline": seconds}
        self._now |= {"ended": None, "is_over": False}
        self._goes_on = True
        self._write()

    def heard(self, site: str, outcome: str, seconds: float) -> None:
        if not self._goes_on:  # it is about something else
            return
        self._now["sites"][site] = {"outcome": outcome, "seconds": round(seconds, 3)}
        if time.monotonic() - self._written >= EVERY:
            self._write()

    def end(self, *, is_over: bool = False) -> None:
        """Answers are waited for no more; with `is_over`, nor will there be another round."""
        if self._goes_on or is_over:
            self._now |= {"ended": time.time(), "is_over": is_over}
            self._goes_on = False
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        content = json.dumps({**self._now, "written": time.time()})
        durable.write_for_show(self._path, content.encode())


def _asked(question: OpenQuestion | None) -> dict[str, Any]:
    if question is None:
        return {}
    return {
        "asked_in": question.round,
        "asked_at": question.asked_at,
        "deadline": question.deadline,
    }
