"""What a run of the server begins with: an exchange, or the commit of the one that was made."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from fedcommons import checks
from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.protocol.records import LARGEST, NAME
from fedcommons.federate.server import exchange, withdrawals
from fedcommons.federate.server.adoption import adopt
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.link import Link
from fedcommons.federate.server.strangers import point_out_strangers

logger = logging.getLogger(__name__)


def share(
    link: Link,
    *,
    federation: str,
    state_dir: Path,
    run_id: int,
    copies: int,
    n_sites: int = 2,
    wait: float = 60,
    seconds: float = 120,
    reshare: bool = False,
    leave: Sequence[str] = (),
    seed: int | None = None,
) -> ServerFederation:
    """Exchange once, or take up the exchange that was made: the federation, under its commit."""
    if not NAME.fullmatch(federation):
        raise ArgumentError(f"federation must be letters, digits, . _ -, got {federation!r}")
    copies = checks.integer("copies", copies, low=0)
    n_sites = checks.integer("sites", n_sites, low=2)
    wait = checks.real("wait", wait, low=0)
    seconds = checks.positive("timeout", seconds)
    reshare = checks.boolean("reshare", reshare)
    if seed is not None:
        seed = checks.integer("seed", seed, low=0, high=LARGEST)
    us = ServerFederation(federation, state_dir, run_id)
    try:
        # Sites that have a commit say who they are first: a fresh key would number their rows anew.
        is_first = us.commit_or_none is None and us.unfinished is None and not reshare
        us.meeting.gather(
            link, n_sites=n_sites, wait=wait, with_key=is_first, unless_committed=True
        )
        adopt(us, leave, needed=not reshare)
        withdrawals.check_leaving(us, leave)
        pending = None if reshare else us.unfinished
        if pending is not None and pending.epoch.copies == copies:
            logger.info("going on with the exchange of epoch %d", pending.epoch.number)
            exchange.deliver(us, link, pending, seconds=seconds)
        elif us.commit_or_none is None or reshare:
            if not is_first:
                n_sites = min(n_sites, us.meeting.n_heard)  # who is not there was waited for
                us.meeting.ask_anew()
                us.meeting.gather(
                    link, n_sites=n_sites, wait=wait, with_key=True, unless_committed=False
                )
            exchange.deliver(us, link, exchange.begin(us, copies, seed, leave), seconds=seconds)
        elif us.commit.copies != copies:
            raise FederationError(
                f"copies is {copies}, but the exchange was made with {us.commit.copies}: set "
                "reshare = true to make a new one"
            )
        else:
            us.drop_unfinished()
            logger.info("using the exchange of epoch %d", us.commit.number)
        withdrawals.let_go(us, leave)
        point_out_strangers(us)
    except BaseException:
        us.close()
        raise
    return us
