"""What is tracked of a training: the numbers that its history has of each round."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.server.quarantine import QUARANTINED
from fedcommons.federate.server.round_notes import SITES, TRAINING, RoundNote, SiteNote
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.server.site_metrics import EXAMPLES
from fedcommons.tracking import About, Event


def about(folder: Path, commit: Commit, settings: Settings, config: Mapping[str, Any]) -> About:
    """`folder` is the training's own, in which it goes on."""
    listed = {name: str(value) for name, value in settings.listed.items()}
    told = {f"train_config.{name}": str(value) for name, value in config.items()}
    where = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    key = f"{commit.federation}-{folder.name}-{where}"
    return About(commit.federation, key, listed | told)


def events_of(note: RoundNote) -> list[Event]:
    """Of a round as a whole, then of each site."""
    quarantined = sum(site.outcome == QUARANTINED for site in note.sites)
    all_of_it = {**note.numbers, "quarantined": quarantined, **note.all_metrics}
    measured = {TRAINING: note.training.by_site, SITES: note.evaluation.by_site}
    found = [Event("round", note.round, _numbers(all_of_it))]
    for site in note.sites:
        of_site: dict[str, Any] = _of(site)
        for prefix, by_site in measured.items():
            values = by_site.get(site.site, {}).items()
            of_site |= {f"{prefix}{name}": value for name, value in values if name != EXAMPLES}
        found.append(Event("round", note.round, _numbers(of_site), site.site))
    return found


def _of(site: SiteNote) -> dict[str, Any]:
    return {
        "asked": site.asked,
        "answered": site.answered,
        "late": site.late_counts,
        "straggler_prob": site.straggler_prob,
        "seconds": site.seconds,
        "late_by": site.late_by,
        "clipped": site.clipped,
    }


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in values.items() if isinstance(value, int | float)}
