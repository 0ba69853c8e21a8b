"""Every message to a site is counted for its operator."""

from __future__ import annotations

import contextlib
import time

from flwr.app import Context, Message

from fedcommons.errors import FedcommonsError
from fedcommons.federate.site.tally import Tally
from fedcommons.federate.transport import messages
from fedcommons.federate.transport.node_config import store_folder
from fedcommons.federate.transport.scrubbed_errors import Handler, scrubbed


def counted(message: Message, context: Context, handle: Handler) -> Message:
    """What the handler replies, with scrubbed errors; what it was and how long it took is noted."""
    kind = message.metadata.message_type.removeprefix("query.fc_")
    in_round, received = messages.fields(message).get("round"), messages.size(message)
    start = time.monotonic()
    reply = scrubbed(message, context, handle)
    with contextlib.suppress(FedcommonsError):  # a node config without a store, which it says
        Tally(store_folder(context)).note(
            kind,
            str(reply.error.reason) if reply.has_error() else "ok",
            time.monotonic() - start,
            received=received,
            sent=messages.size(reply),
            in_round=in_round if isinstance(in_round, int) and not reply.has_error() else None,
        )
    return reply
