"""Running statistics stay at a site: nobody else sees them, and nobody averages them.

A coded sum of means and variances (BatchNorm's) is no mean or variance, so a site keeps what its
own training made of them in the state that Flower keeps for it while a run lasts, and puts it into
the model whenever it is asked again. Frozen statistics are a case of that: they come back as they
were.
"""

from __future__ import annotations

from flwr.app import ArrayRecord, RecordDict

from fedcommons.federate.protocol.model_schema import is_running_statistic

KEPT = "fedcommons-statistics"


def with_own(model: ArrayRecord, state: RecordDict) -> ArrayRecord:
    """The model with this site's running statistics, where it has any that fit."""
    kept = state.get(KEPT)
    if not isinstance(kept, ArrayRecord):
        return model
    return ArrayRecord(
        {
            name: kept[name]
            if name in kept and (kept[name].shape, kept[name].dtype) == (array.shape, array.dtype)
            else array
            for name, array in model.items()
        }
    )


def keep(trained: ArrayRecord, state: RecordDict) -> None:
    """Remember the running statistics of a model that this site trained."""
    found = {name: array for name, array in trained.items() if is_running_statistic(name)}
    if found:
        state[KEPT] = ArrayRecord(found)


def forget(state: RecordDict) -> None:
    """Begin with the server's."""
    state.pop(KEPT, None)
