"""What both losses for times share: y is (time, event), event 0 where the example was censored."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import IntArray
from fedcommons.tasks.loss import Loss, Targets, described, quantile_bins, refused


class Survival(Loss):
    """A loss for times until an event, some of which are only known to be longer."""

    kind = "times"

    def __init__(self, dataset: str, *splits: Targets) -> None:
        for y in splits:
            if y.ndim != 2 or y.shape[1] != 2:
                raise refused(
                    dataset, self.name, "(examples, 2), each a time and an event,", described(y)
                )
            times, events = y[:, 0], y[:, 1]
            if (times < 0).any():
                raise refused(
                    dataset, self.name, "times >= 0 with events", f"the time {times.min():g}"
                )
            if not np.isin(events, (0, 1)).all():
                wrong = events[~np.isin(events, (0, 1))][0]
                raise refused(
                    dataset, self.name, "times with events of 0 or 1", f"the event {wrong:g}"
                )
        if not splits[0][:, 1].any():
            raise refused(dataset, self.name, "times with some events in training", "none")

    def truth(self, y: Targets) -> Targets:
        return y.astype(np.float64)

    def groups(self, y: Targets, bins: int) -> IntArray:
        """Quantiles of the time."""
        return quantile_bins(y[:, 0], bins)
