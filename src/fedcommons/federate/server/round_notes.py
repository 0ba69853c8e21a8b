"""What is noted of a round, and said of it."""

from __future__ import annotations

from collections.abc import Callable
from logging import INFO
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.common.logger import log

from fedcommons.checks import FloatArray
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.server.answers import Heard

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]

HEARD = {"answered", "outdated", "withdrew examples"}  # whether or not the answer counts


def by_site(commit: Commit, heard: Heard, straggler_prob: FloatArray) -> list[dict[str, Any]]:
    """What became of each site that is with the commit, and the p that was used for it."""
    return [
        {
            "site": commit.members[i].site,
            "answered": bool(heard.answered[i]),
            "outcome": heard.outcomes[i],
            "straggler_prob": float(straggler_prob[i]),
        }
        for i in np.flatnonzero(commit.present)
    ]


def silent(note: dict[str, Any], before: int) -> int:
    """How many rounds in a row nobody answered; those in which nobody was asked do not count."""
    outcomes = {site["outcome"] for site in note["sites"]}
    if outcomes & HEARD:
        return 0
    return before + bool(outcomes - {"not asked"})


def log_round(note: dict[str, Any], num_rounds: int) -> None:
    """One line: metrics, how many answered, who did not and why, and the p of each site."""
    sites = note["sites"]
    metrics = "".join(
        f"{name} {value:.4f}, "
        for name, value in note["metrics"].items()
        if isinstance(value, float | int)
    )
    missing = [f"{s['site']} ({s['outcome']})" for s in sites if not s["answered"]]
    log(
        INFO,
        "round %d/%d: %s%d of %d answered%s; p %s",
        note["round"],
        num_rounds,
        metrics,
        len(sites) - len(missing),
        len(sites),
        f", not {', '.join(missing)}" if missing else "",
        " ".join(f"{s['straggler_prob']:.2f}" for s in sites),
    )


def metrics(evaluate_fn: Evaluate | None, round_number: int, model: ArrayRecord) -> dict[str, Any]:
    """What the app's own evaluation says of the model."""
    found = evaluate_fn(round_number, model) if evaluate_fn else None
    return {} if found is None else dict(found)
