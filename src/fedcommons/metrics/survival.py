"""Metrics of times until an event: risks (B, n), truth (n, 2) of times and events."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.metrics.metric import Array, Metric

AT_ONCE = 256  # events that are compared with all that come later


def c_index_of(risks: Array, truth: Array) -> FloatArray:
    """Harrell's: of the pairs that can be compared, how many have the higher risk fail first.

    A pair can be compared if the one with the shorter time had its event; of two with the same
    time, if one of them alone had. Equal risks count half.
    """
    times, events = truth[:, 0], truth[:, 1] == 1
    # Later is who comes after in this order, but for events at the same time.
    order = np.lexsort((~events, times))
    times, events, risks = times[order], events[order], risks[:, order].astype(np.float64)
    n = len(times)
    first = np.searchsorted(times, times, side="left")
    n_events_then = np.bincount(first, weights=events, minlength=n).astype(np.int64)
    begin = first + n_events_then[first]  # whom an event can be compared with begin here
    failed = np.flatnonzero(events)
    n_pairs = int((n - begin[failed]).sum())
    if n_pairs == 0:
        return np.full(len(risks), np.nan)
    return np.array([_concordant(one, failed, begin) for one in risks]) / n_pairs


def _concordant(risk: FloatArray, failed: Array, begin: Array) -> float:
    """How many of those from `begin` on have less risk than each that failed, equal ones half."""
    total = 0.0
    for k in range(0, len(failed), AT_ONCE):
        some = failed[k : k + AT_ONCE]
        last = int(begin[some[-1]])
        later = np.sort(risk[last:])
        mine = risk[some]
        less = np.searchsorted(later, mine, "left") + np.searchsorted(later, mine, "right")
        near = np.arange(int(begin[some[0]]), last)  # later than some of these only
        later_than = near >= begin[some][:, None]
        other = risk[near]
        ahead = (other < mine[:, None]) + 0.5 * (other == mine[:, None])
        total += less.sum() / 2 + float((ahead * later_than).sum())
    return total


c_index = Metric(
    "c_index", "C-index", ("times",), True, c_index_of, "without a pair that can be compared"
)
