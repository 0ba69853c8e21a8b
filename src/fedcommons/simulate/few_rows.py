"""What is remembered where few of many clients are asked: a row for each that has ever answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]


class FewRows:
    """An array (E, N, P) of zeros whose rows [e, i] take room when they are written."""

    def __init__(self, n_groups: int, n_rows: int, n_params: int) -> None:
        self._place = np.full((n_groups, n_rows), -1, np.int64)  # in `_rows`; -1: nothing there
        self._rows = np.zeros((0, n_params), np.float32)
        self._used = 0

    def __getitem__(self, at: Any) -> Any:
        """The rows of curve runs and clients, arrays of one length, (n, P); or some curve runs."""
        if isinstance(at, slice):
            found = FewRows(0, 0, self._rows.shape[1])
            found._place, found._rows, found._used = self._place[at], self._rows, self._used
            return found
        place = self._place[at]
        if not np.ndim(place):
            return self._rows[place] if place >= 0 else np.zeros(self._rows.shape[1], np.float32)
        result = np.zeros((len(place), self._rows.shape[1]), np.float32)
        result[place >= 0] = self._rows[place[place >= 0]]
        return result

    def __setitem__(self, at: Any, rows: Float32) -> None:
        if not isinstance(at, tuple):  # all rows of one curve run
            everybody = np.arange(self._place.shape[1])
            at = np.full(len(everybody), at), everybody
        e, i = np.atleast_1d(at[0]), np.atleast_1d(at[1])
        new = self._place[e, i] < 0
        n = int(new.sum())
        if self._used + n > len(self._rows):
            more = max(2 * len(self._rows), self._used + n) - len(self._rows)
            empty = np.zeros((more, self._rows.shape[1]), np.float32)
            self._rows = np.concatenate([self._rows, empty])
        self._place[e[new], i[new]] = self._used + np.arange(n)
        self._used += n
        self._rows[self._place[e, i]] = rows

    @property
    def n_written(self) -> int:
        """How many rows take room."""
        return self._used

    def weighted(self, weight: Float32) -> Float32:
        """sum_i v_i h_i for weights (E, N): (E, P)."""
        found = np.zeros((len(self._place), self._rows.shape[1]), np.float32)
        for e, place in enumerate(self._place):
            known = np.flatnonzero(place >= 0)
            by = np.zeros(self._used, np.float32)
            by[place[known]] = weight[e, known]
            found[e] = by @ self._rows[: self._used]
        return found


def nothing(n_groups: int, n_rows: int, n_params: int, *, few: bool) -> Any:
    """Zeros (E, N, P) to be written to; where `few` rows are, they take room when they are."""
    if few:
        return FewRows(n_groups, n_rows, n_params)
    return np.zeros((n_groups, n_rows, n_params), np.float32)


def weighted(rows: Any, weight: Float32) -> Float32:
    """sum_i v_i h_i for rows (E, N, P) and weights (E, N): (E, P)."""
    if isinstance(rows, FewRows):
        return rows.weighted(weight)
    return np.asarray(np.einsum("en,enp->ep", weight, rows))
