"""What a run of the server begins with: an exchange, or the commit of the one that was made."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedcommons import checks, shown
from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.protocol.records import LARGEST, NAME
from fedcommons.federate.server import claims, exchange, withdrawals
from fedcommons.federate.server.adoption import adopt
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.lifting import lift_what_was_asked
from fedcommons.federate.server.link import Link
from fedcommons.federate.server.quarantine import enforced
from fedcommons.federate.server.strangers import point_out_strangers

logger = shown.logger(__name__)


@dataclass(frozen=True, slots=True)
class ExchangeSettings:
    """How to share, if there is to be an exchange.

    Attributes:
        copies: d, how many other sites get each shareable example.
        n_sites: how many sites to wait for, for at most `wait` seconds.
        seconds: how long a site may take for a message of the exchange.
        reshare: make a new exchange although there is one.
        leave: names of sites that left for good.
        seed: of the draw in a simulation, whose runs can be repeated. Real sites draw together,
            whatever it is.
        most_examples: that a site may claim without the operator's approval.
        nobody_comes: all nodes are connected from the start, as in a simulation.
    """

    copies: int
    n_sites: int = 2
    wait: float = 60
    seconds: float = 120
    reshare: bool = False
    leave: Sequence[str] = ()
    seed: int | None = None
    nobody_comes: bool = False
    most_examples: int = claims.MOST_EXAMPLES

    def __post_init__(self) -> None:
        checked = {
            "copies": checks.integer("copies", self.copies, low=0),
            "n_sites": checks.integer("sites", self.n_sites, low=2),
            "wait": checks.real("wait", self.wait, low=0),
            "seconds": checks.positive("timeout", self.seconds),
            "most_examples": checks.integer("max-examples", self.most_examples, low=1),
            "reshare": checks.boolean("reshare", self.reshare),
        }
        if self.seed is not None:
            checked["seed"] = checks.integer("seed", self.seed, low=0, high=LARGEST)
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def share(
    link: Link,
    *,
    federation: str,
    state_dir: Path,
    run_id: int,
    check_room: Callable[[int], None] = lambda _n_sites: None,
    **settings: Any,
) -> ServerFederation:
    """Exchange once, or take up the exchange that was made: the federation, under its commit.

    `settings` are those of `ExchangeSettings`. Before an exchange is begun, `check_room` is called
    with the number of sites that are there, and may refuse.
    """
    if not NAME.fullmatch(federation):
        raise ArgumentError(f"federation must be letters, digits, . _ -, got {federation!r}")
    wanted = ExchangeSettings(**settings)
    us = ServerFederation(federation, state_dir, run_id)
    us.leaving = frozenset(wanted.leave)
    us.most_examples = wanted.most_examples
    us.meeting.seed = wanted.seed
    try:
        _find_a_commit(us, link, wanted, check_room)
        withdrawals.let_go(us, wanted.leave)
        withdrawals.have_signed(us)
        lift_what_was_asked(us)
        commit = enforced(us.quarantine, us.commit)
        if commit is not us.commit:
            us.record(commit)
        point_out_strangers(us)
    except BaseException:
        us.close()
        raise
    return us


def _find_a_commit(
    us: ServerFederation, link: Link, wanted: ExchangeSettings, check_room: Callable[[int], None]
) -> None:
    """Meet the sites; then go on with an exchange, make one, or use the one that was made."""
    # Sites that have a commit say who they are first: a fresh key would number their rows anew.
    is_first = us.commit_or_none is None and us.unfinished is None and not wanted.reshare
    n_sites, wait, seconds = wanted.n_sites, wanted.wait, wanted.seconds
    gather = partial(us.meeting.gather, link, wait=wait, nobody_comes=wanted.nobody_comes)
    gather(n_sites=n_sites, with_key=is_first, unless_committed=True)
    adopt(us, wanted.leave, needed=not wanted.reshare)
    withdrawals.check_leaving(us, wanted.leave)
    pending = None if wanted.reshare else us.unfinished
    if pending is not None and pending.epoch.copies == wanted.copies:
        logger.info("going on with the exchange of epoch %d", pending.epoch.number)
        us.meeting.know_as(pending.epoch.sites)
        exchange.deliver(us, link, pending, seconds=seconds)
    elif us.commit_or_none is None or wanted.reshare:
        if not is_first:
            n_sites = min(n_sites, us.meeting.n_heard)  # who is not there was waited for
            us.meeting.ask_anew()
            gather(n_sites=n_sites, with_key=True, unless_committed=False)
        check_room(len(us.meeting.here))

        def offer_anew(without: Set[str]) -> None:
            us.meeting.ask_anew()
            n = max(n_sites - len(without), 2)
            gather(n_sites=n, with_key=True, unless_committed=False)

        begun = exchange.begin(us, link, wanted.copies, offer_anew, wanted.leave, seconds=seconds)
        exchange.deliver(us, link, begun, seconds=seconds)
    elif us.commit.copies != wanted.copies:
        raise FederationError(
            f"copies is {wanted.copies}, but the exchange was made with {us.commit.copies}: set "
            "reshare = true to make a new one"
        )
    else:
        us.drop_unfinished()
        us.meeting.know_as(us.commit.members)
        logger.info("using the exchange of epoch %d", us.commit.number)
        n = len(us.commit.members_present)
        if wanted.nobody_comes and n != n_sites:
            logger.warning(
                "the exchange was made by %d sites, and %d are simulated now: an app that divides "
                "its data by num-partitions gives each of them other data than it had, which sites "
                "refuse (DataChanged). Run it with %d sites, or make a new exchange with reshare = "
                "true, or remove %s to begin anew",
                *(n, n_sites, n, us.state.folder),
            )
