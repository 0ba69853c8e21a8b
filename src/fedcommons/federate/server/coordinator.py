"""The server's side of a federation: which epoch, what was delivered, the commit all train by."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from logging import INFO, WARNING
from pathlib import Path

from flwr.common.logger import log
from flwr.serverapp import Grid

from fedcommons import checks
from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.example_schema import misfit, usual
from fedcommons.federate.protocol.receipts import Receipt
from fedcommons.federate.protocol.records import LARGEST, NAME, Epoch, Offer
from fedcommons.federate.server import adoption
from fedcommons.federate.server.adoption import Witnesses
from fedcommons.federate.server.delivery import Delivery
from fedcommons.federate.server.meeting import Meeting
from fedcommons.federate.server.state import Exchange, ServerState

MEET_AGAIN_SECONDS = 1.0
MOST_AHEAD = 1_000_000  # epochs that a site may have seen and the others not


class Federation:
    """A federation as its server knows it: the commit, and which node is which site in this run."""

    def __init__(self, name: str, state_dir: Path, run_id: int) -> None:
        self.name = name
        self.meeting = Meeting(name, run_id)
        self.state = ServerState(state_dir)
        try:
            self._commit = self.state.commit()
            self._exchange = self.state.exchange()
            self.meeting.committed = self._commit
            for known in (self._commit, self._exchange and self._exchange.epoch):
                if known and known.federation != name:
                    raise FederationError(
                        f"state-dir {state_dir} belongs to the federation {known.federation!r}, "
                        f"this is {name!r}"
                    )
        except BaseException:
            self.close()
            raise

    @property
    def commit(self) -> Commit:
        if self._commit is None:
            raise FederationError("the federation has no commit yet: share first")
        return self._commit

    def record(self, commit: Commit) -> None:
        """Make a commit the one that all train by."""
        self.state.save_commit(commit)
        self._commit = commit
        self.meeting.committed = commit

    def receipts(self, sender: str) -> list[Receipt]:
        """The receipts for what a site sent in the committed epoch."""
        if self._exchange is None or self._exchange.epoch.digest.hex() != self.commit.epoch:
            return []
        return [receipt for receipt in self._exchange.receipts if receipt.sender == sender]

    def close(self) -> None:
        """Let another run have the state-dir."""
        self.state.close()

    # Before there is a commit to train by

    @property
    def unfinished(self) -> Exchange | None:
        """The exchange that was begun and not committed, if there is one."""
        last = self._commit.number if self._commit else 0
        return self._exchange if self._exchange and self._exchange.epoch.number > last else None

    def gather(
        self, grid: Grid, *, n_sites: int, wait: float, with_key: bool, unless_committed: bool
    ) -> None:
        """Wait for `n_sites` sites, for at most `wait` seconds; two are needed."""
        end = time.monotonic() + wait
        while True:
            self.meeting.ask_all(
                grid,
                with_key=with_key,
                unless_committed=unless_committed,
                seconds=max(end - time.monotonic(), 1.0),
                n_sites=n_sites,
            )
            left = end - time.monotonic()
            if self.meeting.n_heard >= n_sites or left <= 0:
                break
            time.sleep(min(MEET_AGAIN_SECONDS, left))
        if len(self.meeting.here) < 2:
            raise FederationError(
                f"two sites are needed, {len(self.meeting.here)} answered within {wait:g} s; "
                f"nodes that were not taken in: {self.meeting.refused or 'none'}"
            )
        log(INFO, "%d sites are there", len(self.meeting.here))

    def adopt(self, leaving: Sequence[str], *, needed: bool) -> None:
        """Take up the newest commit that sites report, if the server does not have it any more.

        Where a new exchange follows it is not `needed`, and nothing is an error.
        """
        reported = self.meeting.commits
        newest = adoption.newest_of(reported)
        known = self._commit.order if self._commit else (self._pending_number(), 0)
        if newest is None or newest.order <= known:
            return
        if self._commit is None:
            there = self._witnesses(leaving)
            try:
                adoption.check_believable(newest, there)
            except FederationError as error:
                if needed:
                    raise
                log(WARNING, "%s", error)
                return
            self._give_up_what_was_lost(newest, there.seen)
        elif not adoption.is_later(newest, self._commit, reported, set(self.meeting.here)):
            by = {identity for identity, commit in reported.items() if commit == newest}
            log(WARNING, "commit %s, which %s report, is not adopted: it does not follow from the "
                "server's", newest.order, self._witnesses(()).listed(by))  # fmt: skip
            return
        log(WARNING, "adopting commit %s, which sites report", newest.order)
        self.record(newest)

    def _pending_number(self) -> int:
        """The number of an exchange that can be gone on with: later than what sites are under."""
        return self.unfinished.epoch.number if self.unfinished else 0

    def _witnesses(self, leaving: Sequence[str]) -> Witnesses:
        offers = {i: offer.checked() for i, offer in self.meeting.offers.items()}
        return Witnesses(
            names={identity: offer.site for identity, offer in offers.items()},
            reported=self.meeting.commits,
            seen={identity: offer.highest_epoch for identity, offer in offers.items()},
            withdrew=self.meeting.withdrew,
            leaving=set(leaving),
        )

    def _give_up_what_was_lost(self, newest: Commit, seen: Mapping[str, int]) -> None:
        """Exchanges that members took part in after a commit went with the server's state."""
        numbers = [n for identity, n in seen.items() if newest.index(identity) is not None]
        last = max((n for n in numbers if n <= newest.number + MOST_AHEAD), default=0)
        if last > newest.number:
            self.state.give_up(last)
            self._exchange = None

    def begin(self, copies: int, seed: int | None, leaving: Sequence[str] = ()) -> Exchange:
        """A new epoch with the sites that are there, on the disk before anybody hears of it.

        Those that are `leaving`, by name, have no part in it.
        """
        signed = [self.meeting.offers[identity] for identity in self.meeting.here]
        sites = sorted(
            (
                (offer, one)
                for one in signed
                if (offer := one.checked()).key and offer.site not in leaving
            ),
            key=lambda pair: pair[0].site,
        )
        names = [offer.site for offer, _ in sites]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise FederationError(f"each site must have a name of its own, got {twice} twice")
        layout = usual(offer for offer, _ in sites)
        unfit = {offer.site: why for offer, _ in sites if (why := misfit(offer, *layout))}
        for site, why in unfit.items():
            log(WARNING, "%s is left out of the exchange: %s", site, why)
        sites = [(offer, one) for offer, one in sites if offer.site not in unfit]
        if len(sites) < 2 or not 0 <= copies < len(sites):
            raise FederationError(
                f"copies must be in 0 to {len(sites) - 1} with {len(sites)} sites, of which two "
                f"are needed, got {copies}; left out were {unfit or 'none'}"
            )
        epoch = Epoch(
            self.name,
            self._next_number({offer.site: offer.highest_epoch for offer, _ in sites}),
            secrets.randbits(62) if seed is None else seed,
            copies,
            tuple(one for _, one in sites),
        )
        self._exchange = Exchange(epoch, ())
        self.state.save_exchange(self._exchange, "server.epoch")
        return self._exchange

    def _next_number(self, claims: Mapping[str, int]) -> int:
        """An epoch above all that sites have seen; a claim far above the others' is refused."""
        own = [self._commit.number] if self._commit else []
        own += [self._exchange.epoch.number] if self._exchange else []
        usual = max([*own, sorted(claims.values())[(len(claims) - 1) // 2]])
        for site, claim in claims.items():
            if claim > usual + MOST_AHEAD:
                raise FederationError(
                    f"{site} says that it has seen epoch {claim}, the others {usual}: find out "
                    "what happened to its store; the exchange can be made without it"
                )
        return max([*own, *claims.values()]) + 1

    def drop_unfinished(self) -> None:
        """Give up an exchange that was begun and will not be gone on with."""
        if self.unfinished is not None:
            log(INFO, "the exchange of epoch %d is given up", self.unfinished.epoch.number)
            self.state.give_up(self.unfinished.epoch.number)
            self._exchange = None

    def deliver(self, grid: Grid, exchange: Exchange, *, seconds: float) -> None:
        """Route the envelopes of an exchange, and commit to the deliveries that have receipts."""
        start = time.monotonic()
        delivery = Delivery(grid, self.meeting, self.state, exchange, seconds=seconds)
        self._exchange = delivery.run()
        epoch = exchange.epoch
        if len(epoch.sites) - len(delivery.lost) < 2:
            why = {epoch.sites[place].site: reason for place, reason in delivery.lost.items()}
            raise FederationError(
                f"epoch {epoch.number} is not committed: two sites are needed for an exchange; "
                f"lost were {why}; reshare = true begins anew with the sites that are there"
            )
        place = {site.identity: i for i, site in enumerate(epoch.sites)}
        pairs = {(place[r.sender], place[r.recipient]) for r in self._exchange.receipts}
        self.record(Commit.of(epoch, tuple(sorted(pairs))))
        log(
            INFO,
            "epoch %d committed: %d deliveries, %d examples, %.1f s",
            epoch.number,
            len(pairs),
            self.commit.n_examples,
            time.monotonic() - start,
        )

    # Who leaves, and who is not in it

    def check_leaving(self, leaving: Sequence[str]) -> None:
        """A name that was never heard is a mistake; one that left long ago may stay in a config."""
        here = {self.meeting.offers[identity].checked().site for identity in self.meeting.here}
        known = here | self.state.names_of_sites()
        for site in leaving:
            if site not in known:
                raise FederationError(
                    f"leave must name sites of the federation, {sorted(known)}, got {site!r}"
                )

    def let_go(self, leaving: Sequence[str]) -> None:
        """Commit anew without the sites, by name, that left for good or withdrew everything."""
        for place, member in enumerate(self.commit.members):
            leaves = member.site in leaving or member.identity in self.meeting.withdrew
            if leaves and self.commit.present[place]:
                self.record(self.commit.without(place))
                log(INFO, "%s left the federation: commit %s", member.site, self.commit.order)

    def _misfit(self, offer: Offer) -> str:
        """How a site's examples differ from those of the committed epoch, as far as it is known."""
        if self._exchange is None or self._exchange.epoch.digest.hex() != self.commit.epoch:
            return ""
        return misfit(offer, *usual(self._exchange.epoch.sites))

    def point_out_strangers(self) -> None:
        """Say which sites that are there have no part in the commit, and why.

        It is an error if that is all of them: the state-dir is not theirs.
        """
        members = {member.site: member.identity for member in self.commit.members}
        if not set(members.values()) & (set(self.meeting.here) | self.meeting.withdrew):
            raise FederationError(
                f"none of the sites that are there took part in the exchange of epoch "
                f"{self.commit.number}, which {self.state.folder} holds: set another state-dir, "
                "or reshare = true for a new exchange"
            )
        name_of = {identity: site for site, identity in members.items()}
        for identity in self.meeting.here:
            offer = self.meeting.offers[identity].checked()
            site = offer.site
            if name_of.get(identity, site) != site:
                log(
                    WARNING,
                    "%s is %s in the exchange: give it that name again, or it is refused",
                    site,
                    name_of[identity],
                )
            elif site not in members and (why := self._misfit(offer)):
                log(WARNING, "%s has no part in the exchange: %s", site, why)
            elif site not in members:
                log(WARNING, "%s came after the exchange: reshare = true takes it in", site)
            elif members[site] != identity:
                log(
                    WARNING, "%s has another key than in the exchange: has it lost its store?", site
                )


def share(
    grid: Grid,
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
) -> Federation:
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
    us = Federation(federation, state_dir, run_id)
    try:
        # Those under a commit say who they are first: a fresh key would number their rows anew.
        is_first = us._commit is None and us.unfinished is None and not reshare
        us.gather(grid, n_sites=n_sites, wait=wait, with_key=is_first, unless_committed=True)
        us.adopt(leave, needed=not reshare)
        us.check_leaving(leave)
        pending = None if reshare else us.unfinished
        if pending is not None and pending.epoch.copies == copies:
            log(INFO, "going on with the exchange of epoch %d", pending.epoch.number)
            us.deliver(grid, pending, seconds=seconds)
        elif us._commit is None or reshare:
            if not is_first:
                n_sites = min(n_sites, us.meeting.n_heard)  # who is not there was waited for
                us.meeting.ask_anew()
                us.gather(grid, n_sites=n_sites, wait=wait, with_key=True, unless_committed=False)
            us.deliver(grid, us.begin(copies, seed, leave), seconds=seconds)
        elif us.commit.copies != copies:
            raise FederationError(
                f"copies is {copies}, but the exchange was made with {us.commit.copies}: set "
                "reshare = true to make a new one"
            )
        else:
            us.drop_unfinished()
            log(INFO, "using the exchange of epoch %d", us.commit.number)
        us.let_go(leave)
        us.point_out_strangers()
    except BaseException:
        us.close()
        raise
    return us
