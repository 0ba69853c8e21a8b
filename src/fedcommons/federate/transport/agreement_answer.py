"""A site's replies in the agreement check: gradients of what it exchanged with each peer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import FloatArray, IntArray
from fedcommons.federate.protocol import agreement
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.model_schema import ModelSchema, NamedArrays
from fedcommons.federate.site.agreement import Agreement
from fedcommons.federate.site.site import Site
from fedcommons.federate.transport import coded_answer
from fedcommons.federate.transport.coded_answer import Train
from fedcommons.federate.transport.weighted_examples import WeightedExamples


def reply(
    site: Site, commit: Commit, request: Mapping[str, Any], model: NamedArrays, train: Train
) -> dict[str, Any]:
    """The fields of the reply to one of `agreement.TASKS`."""
    me = site.place(commit)
    check = Agreement(site, commit, me, bytes(request["audit-nonce"]))

    def gradient(x: npt.NDArray[Any], y: IntArray) -> FloatArray:
        if not len(y):
            return np.zeros(ModelSchema.of(model).n_params)
        held = WeightedExamples(x, y, np.ones(len(y)), one_step=True)
        arrays = coded_answer.answer(model, held, train)
        return ModelSchema.of(arrays).vector(arrays)

    numbers = site.holdings(commit).own
    order = np.argsort(numbers, kind="stable")
    own = cache(lambda: site.rows.examples(site.manifest_of(commit)))  # read for all recipients

    def of_sent(recipient: int) -> FloatArray:
        rows = order[np.isin(numbers[order], commit.draw.assigned(me, recipient))]
        x, y = own()
        return gradient(x[rows], y[rows])

    def of_received(sender: int) -> FloatArray:
        return gradient(*site.received_examples(commit, sender))

    if request["task"] == agreement.KEY:
        key, signature = check.key()
        return {"audit-key": key, "audit-signature": signature}
    if request["task"] == agreement.SEAL:
        pairs = zip(request["audit-keys"], request["audit-signatures"], strict=True)
        keys = dict(zip(request["audit-places"], pairs, strict=True))
        sealed = check.seal(keys, of_sent)
        return {"audit-places": list(sealed), "audit-sealed": list(sealed.values())}
    envelopes = dict(zip(request["audit-places"], request["audit-sealed"], strict=True))
    found = check.compare(bytes(request["audit-key"]), envelopes, of_received)
    return {"audit-places": list(found), "audit-agrees": [int(yes) for yes in found.values()]}
