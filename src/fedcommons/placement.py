"""The placement: which clients hold which example.

Everything before it builds it, everything after it reads it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedcommons import checks, partition, placement_file
from fedcommons.checks import FloatArray, IntArray
from fedcommons.errors import ArgumentError, PlacementFileError

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Who holds what, example by example.

    Example j is held by its owner and by `recipients[indptr[j]:indptr[j + 1]]`, which are sorted,
    differ from each other and never contain the owner: nobody holds an example twice. The arrays
    are read-only; those that were not when they came are copied. Build one with
    `fedcommons.sharing`, or from pairs with `from_copies`.

    Attributes:
        owner: (M,) the client that owns each example.
        indptr: (M + 1,) where each example's recipients start.
        recipients: (B,) the clients that hold the copies, B in all.
        n_clients: N.
    """

    owner: npt.NDArray[np.int32]
    indptr: IntArray
    recipients: npt.NDArray[np.int32]
    n_clients: int

    def __post_init__(self) -> None:
        n_clients = checks.n_clients(self.n_clients)
        owner = checks.owner(self.owner, n_clients)
        indptr = checks.indices("indptr", self.indptr, length=len(owner) + 1)
        recipients: npt.NDArray[np.integer] = np.asarray(self.recipients)
        if recipients.dtype != np.int32:  # int32 stays as it is: there may be very many
            recipients = checks.indices("recipients", recipients, below=n_clients)
        _check_copies(owner, indptr, recipients, n_clients)
        for name, array, dtype in (
            ("owner", owner, np.int32),
            ("indptr", indptr, np.int64),
            ("recipients", recipients, np.int32),
        ):
            frozen = array.astype(dtype, copy=array.flags.writeable)
            frozen.flags.writeable = False
            object.__setattr__(self, name, frozen)
        object.__setattr__(self, "n_clients", n_clients)

    @classmethod
    def from_copies(
        cls,
        owner: npt.ArrayLike,
        examples: npt.ArrayLike,
        recipients: npt.ArrayLike,
        *,
        n_clients: int,
    ) -> Placement:
        """The placement in which each copy of `examples[k]` is held by `recipients[k]`."""
        n_clients = checks.n_clients(n_clients)
        owner = checks.owner(owner, n_clients)
        examples = checks.indices("examples", examples, below=len(owner))
        recipients = checks.indices("recipients", recipients, below=n_clients, length=len(examples))
        order = np.lexsort((recipients, examples))
        indptr = np.zeros(len(owner) + 1, np.int64)
        np.cumsum(np.bincount(examples, minlength=len(owner)), out=indptr[1:])
        return cls(owner.astype(np.int32), indptr, recipients[order].astype(np.int32), n_clients)

    @property
    def n_examples(self) -> int:
        """M."""
        return len(self.owner)

    @property
    def n_copies(self) -> int:
        """B, the total amount of shared data: records moved, summed over the labels."""
        return len(self.recipients)

    @property
    def copies(self) -> IntArray:
        """How often each example was copied, d_j - 1: shape (M,)."""
        return np.diff(self.indptr)

    @property
    def holder_counts(self) -> IntArray:
        """d_j, the number of clients that hold each example: shape (M,)."""
        return self.copies + 1

    def holders(self, example: int) -> IntArray:
        """The clients that hold one example, sorted."""
        example = checks.integer("example", example, low=0, high=self.n_examples - 1)
        copies = self.recipients[self.indptr[example] : self.indptr[example + 1]]
        return np.sort(np.append(copies, self.owner[example])).astype(np.int64)

    def held_by(self, client: int) -> IntArray:
        """The examples that one client holds, sorted. For all clients at once: `holdings`."""
        client = checks.integer("client", client, low=0, high=self.n_clients - 1)
        received = np.flatnonzero(self.recipients == client)
        copied = np.searchsorted(self.indptr, received, side="right") - 1
        return np.sort(np.concatenate([np.flatnonzero(self.owner == client), copied]))

    def holdings(self) -> csr_array:
        """H, the 0/1 matrix of who holds what, by client: sparse, shape (N, M)."""
        from scipy.sparse import csc_array  # slow to import: a site does without

        sizes = self.indptr + np.arange(self.n_examples + 1)
        index: npt.DTypeLike = np.int32 if sizes[-1] < 2**31 else np.int64
        indices = np.empty(sizes[-1], index)
        is_owner = np.zeros(sizes[-1], np.bool_)
        is_owner[sizes[:-1]] = True
        indices[is_owner] = self.owner
        indices[~is_owner] = self.recipients
        # int32, not int8: products of H with itself count examples.
        arrays: Any = (np.ones(sizes[-1], np.int32), indices, sizes.astype(index))
        by_example = csc_array(arrays, shape=(self.n_clients, self.n_examples))
        return by_example.tocsr()

    def owned_counts(self) -> IntArray:
        """How many examples each client owns: shape (N,)."""
        return np.bincount(self.owner, minlength=self.n_clients)

    def sent(self) -> IntArray:
        """How many records each client gave away: shape (N,)."""
        weights = self.copies
        return np.bincount(self.owner, weights=weights, minlength=self.n_clients).astype(np.int64)

    def received(self) -> IntArray:
        """How many records each client got, S_i summed over the labels: shape (N,)."""
        return np.bincount(self.recipients, minlength=self.n_clients)

    def held_counts(self) -> IntArray:
        """How many examples each client computes on: shape (N,)."""
        return self.owned_counts() + self.received()

    def extra_compute(self) -> FloatArray:
        """Work per round that sharing adds, relative to a client's own examples: shape (N,).

        0 for a client that received nothing; infinite for one that owns nothing and received.
        """
        received, owned = self.received(), self.owned_counts()
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(received == 0, 0.0, received / owned)

    def overlap(self) -> IntArray:
        """How many examples each two clients both hold, H H^T: shape (N, N)."""
        held = self.holdings()
        return (held @ held.T).toarray().astype(np.int64)

    def label_counts(self, labels: npt.ArrayLike, *, n_classes: int | None = None) -> IntArray:
        """X K + S: how many examples of each class each client holds, shape (N, L)."""
        labels, n_classes = checks.labels(labels, n_classes)
        checks.same_length("labels", labels, self.n_examples)
        own = partition.label_counts(labels, self.owner, self.n_clients, n_classes=n_classes)
        cells = self.recipients * np.int64(n_classes) + np.repeat(labels, self.copies)
        return own + np.bincount(cells, minlength=own.size).reshape(own.shape)

    def label_proportions(
        self, labels: npt.ArrayLike, *, n_classes: int | None = None
    ) -> FloatArray:
        """Y, each label's proportions over the clients after sharing (eq. 1): shape (N, L).

        The columns sum to 1; a class without examples has NaN.
        """
        counts = self.label_counts(labels, n_classes=n_classes)
        with np.errstate(invalid="ignore"):
            return counts / counts.sum(axis=0)

    def relabel(self, new_name: npt.ArrayLike) -> Placement:
        """The same placement with client i called `new_name[i]`, a permutation of {0, ..., N-1}."""
        new_name = checks.indices("new_name", new_name, below=self.n_clients, length=self.n_clients)
        if len(np.unique(new_name)) != self.n_clients:
            raise ArgumentError("new_name must be a permutation of the clients, got a repeated one")
        examples = np.repeat(np.arange(self.n_examples), self.copies)
        return Placement.from_copies(
            new_name[self.owner], examples, new_name[self.recipients], n_clients=self.n_clients
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Placement):
            return NotImplemented
        return (
            self.n_clients == other.n_clients
            and np.array_equal(self.owner, other.owner)
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.recipients, other.recipients)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"Placement({self.n_examples} examples at {self.n_clients} clients, "
            f"{self.n_copies} copies)"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file (NumPy's .npz container), whole or not at all."""
        arrays = {name: getattr(self, name) for name in placement_file.ARRAYS}
        placement_file.write(checks.path("path", path), arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Placement:
        """Read a file that `save` wrote."""
        path = checks.path("path", path)
        arrays = placement_file.read(path)
        try:
            return cls(**{**arrays, "n_clients": arrays["n_clients"][()]})
        except ArgumentError as error:
            raise PlacementFileError(f"{path} is not a valid placement: {error}") from None


def _check_copies(
    owner: IntArray, indptr: IntArray, recipients: npt.NDArray[np.integer], n_clients: int
) -> None:
    if recipients.ndim != 1:
        raise ArgumentError(f"recipients must have one dimension, got shape {recipients.shape}")
    if indptr[0] != 0 or indptr[-1] != len(recipients) or (np.diff(indptr) < 0).any():
        raise ArgumentError(
            f"indptr must rise from 0 to the number of recipients ({len(recipients)}), "
            f"got {indptr[0]} to {indptr[-1]}"
        )
    if not recipients.size:
        return
    if recipients.min() < 0 or recipients.max() >= n_clients:
        wrong = recipients.min() if recipients.min() < 0 else recipients.max()
        raise ArgumentError(f"recipients must be in {{0, ..., {n_clients - 1}}}, got {wrong}")
    rises = recipients[1:] > recipients[:-1]
    starts = indptr[1:-1]
    rises[starts[(starts > 0) & (starts < len(recipients))] - 1] = True
    if not rises.all():
        example = int(np.searchsorted(indptr, np.argmin(rises) + 1, side="right") - 1)
        raise ArgumentError(
            f"recipients must be sorted and differ within an example, got "
            f"{recipients[indptr[example] : indptr[example + 1]].tolist()} for example {example}"
        )
    own = recipients == np.repeat(owner.astype(np.int32), np.diff(indptr))
    if own.any():
        example = int(np.searchsorted(indptr, np.argmax(own), side="right") - 1)
        raise ArgumentError(
            f"recipients must not contain the owner, got client {owner[example]} "
            f"for its own example {example}"
        )
