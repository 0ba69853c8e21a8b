"""Who would take part: label counts, reliability, and what may be shared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcommons import checks, partition
from fedcommons.checks import FloatArray, IntArray
from fedcommons.datasets import Dataset
from fedcommons.errors import ArgumentError
from fedcommons.placement import Placement
from fedcommons.streams import stream

DIRICHLET_DRAWS = 8
P, C = 0.5, 0.5  # where nothing is said
MOST_COUNTS = 10_000_000  # of sites and classes
SECONDS_A_COUNT, BYTES_A_COUNT = 1.2e-6, 140  # seen for a million sites of ten classes
MOST_EXAMPLES = 2**53 - 1  # whole numbers up to here are exact as floats


@dataclass(frozen=True, slots=True, eq=False)
class Sites:
    """Who would take part.

    Attributes:
        counts: (draws, N, L) examples of each class at each site, whole numbers: several possible
            ones where only their distribution is known, else one; (N, L) serves as well.
        straggler_prob: (N,) p_i.
        shareable: (N, L) the proportion of each site's examples of each class that may be shared
            at most; one number, or c_i of each site, serves as well.
        names: of the sites.
        classes: their names, where a file has them.
        left_out: what of the file does not count, in words.
        assumed: "p" and "c", where nobody said them.
    """

    counts: FloatArray
    straggler_prob: FloatArray
    shareable: FloatArray
    names: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        counts = checks.finite("counts", self.counts)
        if counts.ndim == 2:
            counts = counts[None]
        if counts.ndim != 3 or (counts < 0).any() or counts.sum() == 0:
            raise ArgumentError(
                f"counts must be examples of each class at each site, (sites, classes), at least "
                f"one in all and none negative, got shape {np.shape(self.counts)}"
            )
        most = counts.sum(axis=(1, 2)).max()
        if most > MOST_EXAMPLES:
            raise ArgumentError(f"counts must be at most {MOST_EXAMPLES} in all, got {most:g}")
        if (counts != np.rint(counts)).any():
            wrong = counts[counts != np.rint(counts)][0]
            raise ArgumentError(f"counts must be whole numbers, got {wrong:g}")
        _, N, L = counts.shape
        object.__setattr__(self, "counts", counts)
        p = checks.straggler_prob(self.straggler_prob, N)
        object.__setattr__(self, "straggler_prob", p)
        c = np.asarray(self.shareable)
        if c.shape != (N, L):
            c = np.repeat(checks.proportions("shareable", c, N, "site"), L)
        c = checks.proportions("shareable", c.ravel(), N * L, "site and class")
        object.__setattr__(self, "shareable", c.reshape(N, L))

    @property
    def called(self) -> tuple[str, ...]:
        """The sites' names, or numbers where they have none."""
        return self.names or tuple(f"site {k}" for k in range(1, self.n_sites + 1))

    @property
    def n_sites(self) -> int:
        return int(self.counts.shape[1])

    @property
    def n_classes(self) -> int:
        return int(self.counts.shape[2])

    @property
    def n_examples(self) -> int:
        return int(self.counts[0].sum())


def sites_of(
    kind: str,
    *,
    n_sites: int,
    n_classes: int,
    class_size: int,
    alpha: float | None = None,
    straggler_prob: npt.ArrayLike = P,
    shareable: npt.ArrayLike = 1.0,
    seed: int = 0,
) -> Sites:
    """Sites of which only the kind is known: iid, single-class, or dirichlet with alpha."""
    N, L = checks.n_clients(n_sites), checks.integer("n_classes", n_classes, low=2)
    _refuse_too_many(N, L)
    sizes = [checks.integer("class_size", class_size, low=1, high=MOST_EXAMPLES // L)] * L
    if kind == "dirichlet":
        if alpha is None:
            raise ArgumentError("alpha must be given for a Dirichlet partition, got None")
        draws = DIRICHLET_DRAWS if N <= 1000 else 1
        counts = np.stack(
            [
                partition.dirichlet_counts(sizes, N, alpha, rng=stream(seed, "plan", draw))
                for draw in range(draws)
            ]
        )
    elif kind not in ("iid", "single-class"):
        raise ArgumentError(f"partition must be iid, single-class, dirichlet or site, got {kind!r}")
    elif alpha is not None:
        raise ArgumentError(f"alpha goes with a Dirichlet partition only, got {alpha:g} for {kind}")
    elif kind == "iid":
        counts = even_counts(sizes, N)
    else:
        counts = partition.single_class_counts(sizes, N, rng=stream(seed, "plan", 0))
    return Sites(counts.astype(np.float64), np.asarray(straggler_prob), np.asarray(shareable))


def _refuse_too_many(N: int, L: int) -> None:
    if N * L > MOST_COUNTS:
        seconds, memory = N * L * SECONDS_A_COUNT, N * L * BYTES_A_COUNT
        raise ArgumentError(
            f"n_sites must be at most {MOST_COUNTS // L:,} with {L} classes, got {N:,}: a plan "
            f"would take about {seconds / 60:.0f} minutes and {memory / 1e9:.0f} GB; plan for "
            "fewer, relative numbers hardly depend on so many"
        )


def sites_of_dataset(
    dataset: Dataset, *, straggler_prob: npt.ArrayLike = P, shareable: npt.ArrayLike = 1.0
) -> Sites:
    """The sites that a dataset's training examples come from."""
    if dataset.site_train is None:
        raise ArgumentError(
            f"partition site must come with data that name the site of each example, got "
            f"{dataset.name} without"
        )
    N, L = len(dataset.sites), dataset.n_classes
    counts = partition.label_counts(dataset.y_train, dataset.site_train, N, n_classes=L)
    p, c = np.asarray(straggler_prob), np.asarray(shareable)
    return Sites(counts.astype(np.float64), p, c, dataset.sites, _class_names(dataset))


def _class_names(dataset: Dataset) -> tuple[str, ...]:
    """The labels as they are written, where they are kept."""
    names = dataset.encodings.get("label", {}).get("values", ())
    return tuple(map(str, names)) if len(names) == dataset.n_classes else ()


def even_counts(class_sizes: npt.ArrayLike, n_sites: int) -> IntArray:
    """Classes of these sizes, (L,), spread over the sites as evenly as whole numbers go: (N, L)."""
    sizes = np.asarray(class_sizes, np.int64)
    over = sizes % n_sites
    # Who gets one more: the next in turn, class after class, so that the sites' sizes are even too.
    turn = (np.arange(n_sites)[:, None] - (np.cumsum(over) - over)) % n_sites
    counts: IntArray = sizes // n_sites + (turn < over)
    return counts


def sites_of_placement(
    placement: Placement,
    labels: npt.ArrayLike,
    *,
    n_classes: int | None = None,
    straggler_prob: npt.ArrayLike = P,
    shareable: npt.ArrayLike | None = None,
) -> Sites:
    """The sites of a placement that is there, from the classes of its examples, shape (M,).

    What may be shared is what the placement shares, unless `shareable` says otherwise.
    """
    labels, L = checks.labels(labels, n_classes)
    checks.same_length("labels", labels, placement.n_examples)
    N, shared = placement.n_clients, placement.copies > 0
    counts = partition.label_counts(labels, placement.owner, N, n_classes=L)
    if shareable is None:
        given = partition.label_counts(labels[shared], placement.owner[shared], N, n_classes=L)
        shareable = given / np.maximum(counts, 1)
    return Sites(counts.astype(np.float64), np.asarray(straggler_prob), np.asarray(shareable))
