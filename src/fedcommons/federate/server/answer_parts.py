"""The arrays of an answer as they are kept, if they can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.federate.protocol.model_schema import NamedArrays, digest_of
from fedcommons.federate.protocol.refusals import AnswerRefused
from fedcommons.federate.server import answer_sizes
from fedcommons.federate.server.advice import CHANGED
from fedcommons.federate.server.link import Reply
from fedcommons.federate.server.training_folder import TrainingFolder

MOST_CHUNKS = 1 << 20

Parts = list[npt.NDArray[Any]]


def n_chunks(fields: Mapping[str, Any]) -> int:
    """How many chunks the site has of whose one the answer is; 1 if it says nothing."""
    found = fields.get("chunks", 1)
    if type(found) is not int or not 1 <= found <= MOST_CHUNKS:
        raise AnswerRefused("malformed")
    return found


def parts_of(reply: Reply, folder: TrainingFolder) -> tuple[Parts, float]:
    """The trained arrays of a reply, one after another, and the size of the answer.

    Refused if they are not the model's, not what the site made, or not finite.
    """
    return _parts(reply.answer, reply.fields.get("answer-digest"), folder)


def correction_of(reply: Reply, folder: TrainingFolder) -> tuple[Parts, float] | None:
    """The same of what a reply corrects of absent owners; None if it corrects nothing."""
    if reply.correction is None and "correction-digest" not in reply.fields:
        return None
    return _parts(reply.correction, reply.fields.get("correction-digest"), folder)


def _parts(
    arrays: NamedArrays | None, digest: object, folder: TrainingFolder
) -> tuple[Parts, float]:
    if arrays is None:
        raise AnswerRefused("malformed")
    with np.errstate(over="ignore"):
        trained = folder.schema.trained(arrays)
        parts = [np.asarray(array, folder.answers.dtype) for array in trained]
    size = answer_sizes.norm(parts)
    if digest != digest_of(arrays):
        raise AnswerRefused(CHANGED)
    return parts, size
