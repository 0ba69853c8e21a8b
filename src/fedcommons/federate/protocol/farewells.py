"""What a site signs that withdrew everything, so that nobody else can say it in its name."""

from __future__ import annotations

from fedcommons.federate.protocol.records import encode


def farewell(federation: str, node_id: int, run_id: int) -> bytes:
    """The content of the signature: it counts for this federation, node and run alone."""
    return encode({"federation": federation, "node_id": node_id, "run_id": run_id})
