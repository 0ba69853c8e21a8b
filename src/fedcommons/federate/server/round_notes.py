"""What is noted of a round, kept as JSON, and said of it in the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fedcommons import shown
from fedcommons.federate.protocol.model_schema import NamedArrays
from fedcommons.federate.server.open_question import OWES
from fedcommons.federate.server.site_metrics import SiteMetrics

logger = shown.logger(__name__)

Evaluate = Callable[[int, NamedArrays], Mapping[str, Any] | None]
"""The app's own evaluation: (round, model) -> metrics by name."""

TRAINING, SITES = "training_", "sites_"  # before the names of the sites' metrics


NOT_ASKED, AWAY = "not asked", "not connected"  # what may become of a site in a round
HEARD = {"answered", "outdated", "withdrew examples"}  # whether or not the answer counts


@dataclass(frozen=True, slots=True)
class SiteNote:
    """What became of one site in a round, and the p that was used for it.

    Attributes:
        answered: whether its answer to this round's question counts.
        clipped: what its answer was multiplied by, 1 if it was within the bound.
        asked: whether it was to be asked, connected or not.
        ask_prob: the probability of that.
        change: how far its answer is from what was remembered of it, or from 0; None if that was
            not looked at.
        seconds: how long the answer took that came in this round, in time or late.
        asked_in: the round whose question a late answer is to; None if none came.
        late_by: the seconds by which it missed that round's deadline.
        late_counts: whether it counts all the same.
    """

    site: str
    answered: bool
    outcome: str
    straggler_prob: float
    clipped: float = 1.0
    asked: bool = True
    ask_prob: float = 1.0
    change: float | None = None
    seconds: float | None = None
    asked_in: int | None = None
    late_by: float | None = None
    late_counts: bool = False


@dataclass(frozen=True, slots=True)
class RoundNote:
    """One round; round 0 is the initial model, of which only metrics are noted.

    Attributes:
        seconds: how long it took.
        deadline: how many seconds it waited for answers at most, and `why` so many.
        rate: the step on the mean gradient.
        commit: the order of the commit that it ended under.
        sites: those that are with the commit.
        metrics: what the app's evaluation at the server says of the model after it.
        training: what the sites measured while they trained.
        evaluation: what the sites say of the model after it, on data of their own.
        bytes_sent, bytes_received: of models to the sites and of their answers, late ones too.
    """

    round: int
    seconds: float | None = None
    commit: tuple[int, int] | None = None
    sites: tuple[SiteNote, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    training: SiteMetrics = field(default_factory=SiteMetrics)
    evaluation: SiteMetrics = field(default_factory=SiteMetrics)
    deadline: float | None = None
    why: str = ""
    rate: float | None = None
    bytes_sent: int | None = None
    bytes_received: int | None = None

    @property
    def all_metrics(self) -> dict[str, Any]:
        """One number for each metric: the sites' mean by name with a prefix, then the server's."""
        return {
            **{f"{TRAINING}{name}": value for name, value in self.training.pooled.items()},
            **{f"{SITES}{name}": value for name, value in self.evaluation.pooled.items()},
            **self.metrics,
        }

    @property
    def numbers(self) -> dict[str, float | None]:
        """All that was noted of the round as a whole and not measured."""
        return {
            "seconds": self.seconds,
            "deadline": self.deadline,
            "rate": self.rate,
            "asked": self.n_asked,
            "answered": self.n_answered,
            "late": sum(site.late_counts for site in self.sites),
            "clipped": sum(site.clipped < 1 for site in self.sites),
            "sites": len(self.sites),
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
        }

    @property
    def n_answered(self) -> int:
        return sum(site.answered for site in self.sites)

    @property
    def n_asked(self) -> int:
        return sum(site.asked for site in self.sites)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"round": self.round}
        if self.commit is not None:
            found |= {"seconds": self.seconds, "commit": list(self.commit)}
        if self.deadline is not None:
            found |= {"deadline": self.deadline, "why": self.why}
        for name in ("rate", "bytes_sent", "bytes_received"):
            if (value := getattr(self, name)) is not None:
                found[name] = value
        found["sites"] = [asdict(site) for site in self.sites]
        found["metrics"] = dict(self.metrics)
        for name in ("training", "evaluation"):
            if of_sites := getattr(self, name):
                found[name] = of_sites.to_json()
        return found

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RoundNote:
        commit = content.get("commit")
        return cls(
            int(content["round"]),
            content.get("seconds"),
            None if commit is None else (int(commit[0]), int(commit[1])),
            tuple(SiteNote(**site) for site in content["sites"]),
            dict(content["metrics"]),
            training=_site_metrics(content, "training"),
            evaluation=_site_metrics(content, "evaluation"),
            deadline=content.get("deadline"),
            why=str(content.get("why", "")),
            rate=content.get("rate"),
            bytes_sent=content.get("bytes_sent"),
            bytes_received=content.get("bytes_received"),
        )


def _site_metrics(content: Mapping[str, Any], name: str) -> SiteMetrics:
    return SiteMetrics.from_json(content[name]) if name in content else SiteMetrics()


def initial_note(evaluate: Evaluate | None, model: NamedArrays) -> RoundNote:
    return with_metrics(RoundNote(0), evaluate, model)


def with_metrics(note: RoundNote, evaluate: Evaluate | None, model: NamedArrays) -> RoundNote:
    """The note with what the app's evaluation says of the model."""
    found = evaluate(note.round, model) if evaluate else None
    return replace(note, metrics=dict(found or {}))


def silent_rounds(note: RoundNote, before: int) -> int:
    """How many rounds in a row nobody answered; those in which nobody was asked do not count."""
    outcomes = {site.outcome for site in note.sites}
    if outcomes & HEARD:
        return 0
    if any(site.late_counts for site in note.sites):
        return 0
    return before + bool(outcomes - {NOT_ASKED, "quarantined", OWES})


def log_round(note: RoundNote, num_rounds: int) -> None:
    """One line: metrics, how far sites differ in them, who did not answer and why, and each p."""
    metrics = "".join(
        f"{name} {value:.4f}, "
        for name, value in note.all_metrics.items()
        if isinstance(value, float | int)
    )
    metrics += "".join(f"{spread}, " for spread in _spread(note.evaluation))
    clipped = [f"{s.site} (to {s.clipped:.2g} of it)" for s in note.sites if s.clipped < 1]
    missing = [f"{s.site} ({s.outcome})" for s in note.sites if s.asked and not s.answered]
    late = [late_in_words(site) for site in note.sites if site.asked_in is not None]
    n, n_asked = len(note.sites), note.n_asked
    of = f"{n}" if n_asked == n else f"{n_asked} asked of {n}"
    logger.info(
        "round %d/%d: %s%d of %s answered%s%s%s%s; p %s",
        note.round,
        num_rounds,
        metrics,
        note.n_answered,
        of,
        _seconds_in_words(note),
        f", not {', '.join(missing)}" if missing else "",
        f", late {', '.join(late)}" if late else "",
        f", clipped {', '.join(clipped)}" if clipped else "",
        " ".join(f"{s.straggler_prob:.2f}" for s in note.sites),
    )


def _seconds_in_words(note: RoundNote) -> str:
    if note.seconds is None:
        return ""
    why = f" (deadline {note.deadline:.1f} s: {note.why})" if note.deadline and note.why else ""
    return f" in {note.seconds:.1f} s{why}"


def late_in_words(site: SiteNote) -> str:
    """Whose late answer came, by how much it was late, and whether it counts."""
    by = "" if site.late_by is None else f", {site.late_by:.1f} s late"
    counts = "counts" if site.late_counts else "does not count"
    return f"{site.site} (asked in round {site.asked_in}{by}: {counts})"


def _spread(found: SiteMetrics) -> list[str]:
    """From which site's value to which other's each metric goes, where sites differ."""
    spreads = []
    for name in found.pooled:
        values = [(of[name], site) for site, of in found.by_site.items() if name in of]
        if len(values) > 1:
            (low, lowest), (high, highest) = min(values), max(values)
            spreads.append(f"{name} from {low:.4f} ({lowest}) to {high:.4f} ({highest})")
    return spreads
