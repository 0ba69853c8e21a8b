"""One scale for the inputs of all sites: asked for once, before round 1, and kept from then on."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons import scaling, shown
from fedcommons.checks import FloatArray
from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.server import asking, withdrawals
from fedcommons.federate.server.advice import advice
from fedcommons.federate.server.answers import AnswerCollector
from fedcommons.federate.server.checkpoints import Checkpoint
from fedcommons.federate.server.link import CRASHED, NO_ANSWER, TOO_LATE, UNAVAILABLE
from fedcommons.federate.server.settings import Settings
from fedcommons.json_file import read_json
from fedcommons.scaling import Moments, Scale

logger = shown.logger(__name__)

FILE, VERSION = "scale.json", 1
LEAST_SITES = 2  # else the scale would be what one site alone told
AWAY = {"not connected", NO_ANSWER, TOO_LATE, UNAVAILABLE, CRASHED}  # asked again


@dataclass(frozen=True, slots=True, eq=False)
class SitesScale:
    """The scale of a training, and whose examples it is of.

    Attributes:
        scale: what sites bring their inputs to one scale with.
        examples: how many examples it is of, by the site's name.
        left_out: sites that told nothing, and why.
    """

    scale: Scale
    examples: Mapping[str, int]
    left_out: Mapping[str, str]

    @property
    def listed(self) -> dict[str, Any]:
        """As results have it."""
        return {
            "mean": self.scale.mean.tolist(),
            "deviation": self.scale.deviation.tolist(),
            "examples": dict(self.examples),
            "left_out": dict(self.left_out),
        }


def scale_of_training(
    collector: AnswerCollector, settings: Settings, saved: Checkpoint | None
) -> SitesScale | None:
    """The scale of a training: the one that it began with, or a new one. None if it has none.

    It is on the disk before the first round, so that a training that goes on has the same.
    """
    if settings.scale == "none":
        return None
    path = collector.folder.path / FILE
    try:
        return read_scale(path)
    except FileNotFoundError:
        pass
    if saved is not None and saved.round:
        raise FederationError(f"{path} is missing, without which this training cannot go on")
    found = _ask(collector)
    content = json.dumps({"version": VERSION, **found.listed}).encode()
    durable.write_file(path, content, "server.scale")
    return found


def read_scale(path: Path) -> SitesScale:
    """The scale in a file; whatever is wrong with it is named, but that it is missing."""
    content = read_json(path, FederationError)
    try:
        if content["version"] > VERSION:
            raise FederationError(
                f"{path} has format version {content['version']}, this fedcommons reads up to "
                f"version {VERSION}: use the fedcommons that wrote it, or a newer one"
            )
        mean, deviation = _numbers(content["mean"]), _numbers(content["deviation"])
        if mean.shape != deviation.shape or (deviation <= 0).any():
            raise ValueError("a mean and a deviation > 0 for each feature")
        examples = {str(site): int(n) for site, n in content["examples"].items()}
        left_out = {str(site): str(why) for site, why in content["left_out"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FederationError(f"{path} is damaged: {error}") from None
    return SitesScale(Scale(mean, deviation), examples, left_out)


def _numbers(content: Any) -> FloatArray:
    found = np.array(content, np.float64)
    if found.ndim != 1 or not np.isfinite(found).all():
        raise ValueError("numbers that are finite")
    return found


def _ask(collector: AnswerCollector) -> SitesScale:
    """Ask everybody; who is away is asked again, at least once, and for a round's deadline."""
    told: dict[str, Moments] = {}  # by identity, as what follows
    why: dict[str, str] = {}
    end = time.monotonic() + collector.deadline.seconds
    for attempt in itertools.count():
        members = collector.commit.members
        final = told.keys() | {identity for identity, what in why.items() if what not in AWAY}
        asked = np.array(collector.commit.present) & [m.identity not in final for m in members]
        if not asked.any():
            break
        found, moments = collector.moments(asked)
        for place in np.flatnonzero(asked).tolist():
            identity = members[place].identity
            if place in moments:
                told[identity] = moments[place]
                why.pop(identity, None)
            elif place not in found.taken_back:  # else it is asked again under the next commit
                why[identity] = found.outcomes[place]
        is_new = withdrawals.commit_without(collector.federation, found.taken_back, found.left)
        if not is_new and attempt and time.monotonic() >= end:
            break
        if not is_new:
            time.sleep(asking.POLL_SECONDS)
    return _together(collector.commit, told, why)


def _together(commit: Commit, told: Mapping[str, Moments], why: Mapping[str, str]) -> SitesScale:
    """The scale of all who told something, in the order of the roster."""
    sizes = Counter(len(moments.mean) for moments in told.values())
    usual = max(sizes, key=sizes.__getitem__, default=0)
    examples, left_out, parts = {}, {}, []
    for member in commit.members_present:
        moments = told.get(member.identity)
        if moments is None or len(moments.mean) != usual:
            left_out[member.site] = why.get(member.identity, "another number of features")
            continue
        examples[member.site] = moments.n
        parts.append(moments)
    said = ", ".join(f"{site} ({w})" for site, w in left_out.items())
    if len(parts) < LEAST_SITES:
        advised = dict.fromkeys(advice(what) for what in left_out.values())
        raise FederationError(
            f'scale = "standard" must have the means and deviations of {LEAST_SITES} sites or '
            f"more, got {len(parts)}; not those of {said}" + "".join(advised)
        )
    together = scaling.total(parts, usual)
    if not (np.isfinite(together.mean).all() and np.isfinite(together.squares).all()):
        raise FederationError("scale: the inputs' means and deviations must be finite numbers")
    logger.info(
        "inputs are brought to one scale, by the means and deviations of %d examples at %d sites%s",
        together.n,
        len(parts),
        f"; not known of {said}" if said else "",
    )
    return SitesScale(together.scale(), examples, left_out)
