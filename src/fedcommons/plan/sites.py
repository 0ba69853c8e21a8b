"""Who would take part: label counts, reliability, and what may be shared."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcommons import checks, partition
from fedcommons.checks import FloatArray
from fedcommons.errors import ArgumentError, DataError
from fedcommons.streams import stream

DIRICHLET_DRAWS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Sites:
    """Who would take part.

    Attributes:
        counts: (N, L) examples of each class at each site; several possible ones, (draws, N, L),
            where only their distribution is known.
        straggler_prob: (N,) p_i.
        shareable: (N,) c_i, the proportion of each site's examples that may be shared at most.
        names: of the sites.
    """

    counts: FloatArray
    straggler_prob: FloatArray
    shareable: FloatArray
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        counts = checks.finite("counts", self.counts)
        if counts.ndim == 2:
            counts = counts[None]
        if counts.ndim != 3 or (counts < 0).any() or counts.sum() == 0:
            raise ArgumentError(
                f"counts must be examples of each class at each site, (sites, classes), at least "
                f"one in all and none negative, got shape {np.shape(self.counts)}"
            )
        N = counts.shape[1]
        object.__setattr__(self, "counts", counts)
        p = checks.straggler_prob(self.straggler_prob, N)
        object.__setattr__(self, "straggler_prob", p)
        c = checks.proportions("shareable", self.shareable, N, "site")
        object.__setattr__(self, "shareable", c)

    @property
    def n_sites(self) -> int:
        return int(self.counts.shape[1])

    @property
    def n_examples(self) -> float:
        return float(self.counts[0].sum())


def sites_of(
    kind: str,
    *,
    n_sites: int,
    n_classes: int,
    class_size: int,
    alpha: float | None = None,
    straggler_prob: npt.ArrayLike = 0.5,
    shareable: npt.ArrayLike = 1.0,
    seed: int = 0,
) -> Sites:
    """Sites of which only the kind is known: iid, single-class, or dirichlet with alpha."""
    N, L = checks.n_clients(n_sites), checks.integer("n_classes", n_classes, low=2)
    K = checks.integer("class_size", class_size, low=1)
    labels = np.repeat(np.arange(L), K)
    if kind == "iid":
        counts = np.full((1, N, L), K / N)
    elif kind == "single-class":
        owner = partition.single_class(labels, N, rng=stream(seed, "plan", 0))
        counts = partition.label_counts(labels, owner, N, n_classes=L)[None].astype(np.float64)
    elif kind == "dirichlet":
        if alpha is None:
            raise ArgumentError("alpha must be given for a Dirichlet partition, got None")
        checks.positive("alpha", alpha)
        draws = DIRICHLET_DRAWS if N <= 1000 else 1
        counts = np.stack(
            [
                K * stream(seed, "plan", draw).dirichlet(np.full(N, alpha), size=L).T
                for draw in range(draws)
            ]
        )
    else:
        raise ArgumentError(f"partition must be iid, single-class or dirichlet, got {kind!r}")
    return Sites(counts, np.asarray(straggler_prob), np.asarray(shareable))


def read_sites(path: str | os.PathLike[str]) -> Sites:
    """A CSV file, one line for each site: `site`, `p`, `c` and a column for each class's count.

    `site`, `p` (0.5) and `c` (1) may be left out; all other columns are classes.
    """
    path = checks.path("sites", path)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeError, csv.Error) as error:
        raise DataError(f"sites {path} cannot be read: {error}") from None
    if not rows:
        raise DataError(f"sites {path} must have a header and a line for each site, got none")
    classes = [name for name in rows[0] if name not in ("site", "p", "c", None)]

    def number(row: dict[str, str], line: int, name: str, default: float | None = None) -> float:
        text = row.get(name)
        if text is None and default is not None:
            return default
        try:
            return float(text or "")
        except ValueError:
            raise DataError(
                f"sites {path}, line {line}: {name} must be a number, got {text!r}"
            ) from None

    lines = list(enumerate(rows, start=2))
    return Sites(
        np.array([[number(row, i, name) for name in classes] for i, row in lines]),
        np.array([number(row, i, "p", 0.5) for i, row in lines]),
        np.array([number(row, i, "c", 1.0) for i, row in lines]),
        tuple(row.get("site") or f"site {i - 1}" for i, row in lines),
    )
