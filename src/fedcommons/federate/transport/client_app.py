"""A Flower client app that takes part: `attach`, `coded` and `evaluated`, all that it calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedcommons import checks
from fedcommons.errors import ArgumentError
from fedcommons.federate.site.labels import class_names
from fedcommons.federate.transport import messages, mods
from fedcommons.federate.transport.app_data import Shareable
from fedcommons.federate.transport.counted import counted
from fedcommons.federate.transport.flower_internals import app_mods, without_app_mods
from fedcommons.federate.transport.node_config import data_from_node_config
from fedcommons.federate.transport.scrubbed_errors import Handler
from fedcommons.federate.transport.site_client import Coded, Evaluated, SiteClient


def attach(
    app: ClientApp,
    data: Callable[..., Any] | None = None,
    *,
    shareable: Shareable | None = None,
    n_classes: int | None = None,
    classes: Sequence[str] | None = None,
) -> SiteClient:
    """Let a client app take part in exchanges; `data` loads the site's examples.

    It is called with the context, or with what its parameters name in the node config and the run
    config (`partition_id`, `num_partitions`, `batch_size`), and returns `SiteData` or what apps
    have: a loader or dataset for training, or arrays (x, y), with those for testing behind them.
    Without `data` examples are read from the file that the node config names.

    `shareable(x, y)` says which examples may be shared, True that all may; without it none, unless
    `data` says so. With `n_classes` labels that are not below it are refused, the site's own and
    those that others send: else one site's mistake stops the training of all that hold its
    examples. Labels in files that are words are names of `classes`: all sites number these in the
    same order.
    """
    if n_classes is not None:
        n_classes = checks.integer("n_classes", n_classes, low=1)
    if classes is not None:
        names = class_names(classes)
        if data is not None:
            raise ArgumentError(
                "classes must be given where the examples are made, as "
                "SiteData.from_arrays(..., classes=...) or data_from_node_config(context, "
                "classes=...), and not to attach, if it gets data, too"
            )
        data = partial(data_from_node_config, classes=names)
    mods.check_outside(app_mods(app))
    module = sys._getframe(1).f_code.co_filename
    client = SiteClient(app, data, n_classes, shareable, module=module)
    with without_app_mods(app):  # those are for the app's own functions
        for message_type, handler in (
            (messages.OFFER, client.offer),
            (messages.DRAW, client.draw),
            (messages.SEND, client.send),
            (messages.RECEIVE, client.receive),
        ):
            app.query(message_type.removeprefix("query."), mods=[counted])(handler)
    return client


Mod = Callable[[Message, Context, Handler], Message]


def coded(site: SiteClient) -> Mod:
    """The mod of a training function: commit check, coded answer, scrubbed errors.

    It comes first: other mods behind it work on what the training function returns.
    """
    return Coded(site)


def evaluated(site: SiteClient) -> Mod:
    """The mod of an evaluate function: scrubbed errors, and nothing but numbers leaves."""
    return Evaluated(site)
