"""What leaves a federation, at the server: examples that owners withdraw, and whole sites.

Whatever leaves, the answer is a new commit without it; holders delete what it does not give them.
Sites report examples that were withdrawn with their answers (`reported`), and say once that they
withdrew everything; the operator names sites that left for good.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedcommons import shown
from fedcommons.errors import FederationError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.refusals import AnswerRefused, CommitUnknown
from fedcommons.federate.protocol.withdrawals import Withdrawn, is_owners_word, listed_in
from fedcommons.federate.server.asking import OpenQuestions
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.link import Link, Question
from fedcommons.federate.server.quarantine import Offence, with_offenders

logger = shown.logger(__name__)

ROUNDS_BETWEEN = 10  # commits for what was withdrawn by those who are set aside


# Sites that leave for good


def check_leaving(federation: ServerFederation, leaving: Sequence[str]) -> None:
    """A name that was never heard is a mistake; one that left long ago may stay in a config."""
    meeting = federation.meeting
    here = {meeting.offers[identity].checked().site for identity in meeting.here}
    known = here | federation.state.names_of_sites()
    for site in leaving:
        if site not in known:
            raise FederationError(
                f"leave must name sites of the federation, {sorted(known)}, got {site!r}"
            )


def let_go(federation: ServerFederation, leaving: Sequence[str]) -> None:
    """Commit anew without the sites, by name, that left for good or withdrew everything."""
    for place, member in enumerate(federation.commit.members):
        farewell = federation.meeting.farewells.get(member.identity, "")
        if (farewell or member.site in leaving) and federation.commit.present[place]:
            federation.record(federation.commit.without(place, farewell))
            logger.info("%s left the federation: commit %s", member.site, federation.commit.order)


def have_signed(federation: ServerFederation) -> None:
    """Commit anew with the signatures of owners whose withdrawals the commit lists without.

    They are from before owners signed them; holders that were away then want to see that they did.
    """
    commit = federation.commit
    for place, member in enumerate(commit.members):
        said = federation.meeting.withdrawn.get(member.identity, {})
        if commit.present[place] and not is_owners_word(commit, place):
            with contextlib.suppress(Exception):  # whatever a site sends
                if (found := reported(said, commit, place)) is not None:
                    commit = withdraw(commit, place, found)
    if commit is not federation.commit:
        federation.record(commit)


class Dismissals:
    """Tells sites that have no part any more, once: they delete what others gave them.

    They left, or a new exchange was made without them and the commit they have is an older one.
    """

    def __init__(self, federation: ServerFederation) -> None:
        self.federation = federation
        self._told: set[str] = set()

    def tell(self, link: Link, *, seconds: float) -> None:
        meeting, commit = self.federation.meeting, self.federation.commit
        question = Question({"commit": commit.record, "given-up": self.federation.state.given_up})
        gone = {m.identity for i, m in enumerate(commit.members) if not commit.present[i]}
        left_out = {
            identity
            for identity, known in meeting.commits.items()
            if known.order < commit.order and all(m.identity != identity for m in commit.members)
        }
        for identity in sorted((gone | left_out) - self._told):
            node = meeting.node(identity)
            if node is None:
                continue
            link.push("train", {node: question}, seconds=seconds)  # what it answers is no matter
            self._told.add(identity)


class Unasked:
    """Hears what members withdraw that are not asked: that is their right all the same.

    They are quarantined, or a round asks others. They are told of the commit and asked for nothing
    else, and nobody waits for what they reply.
    """

    def __init__(self, federation: ServerFederation, link: Link) -> None:
        self.federation = federation
        self.withdrawn: dict[int, Withdrawn] = {}  # by place, of this commit
        self.left: dict[int, str] = {}  # the farewells of those that withdrew everything
        self._sent = OpenQuestions(link, "train")

    def listen(
        self,
        question: Callable[[int], Question],
        round_number: int,
        others: Iterable[int] = (),
        *,
        seconds: float,
    ) -> None:
        """Note what came since, and ask those again who have replied; `question` is by place.

        `others` are asked beside those that are quarantined. What is set aside anyway leaves with a
        commit in every tenth round: nobody trains on it.
        """
        commit, meeting = self.federation.commit, self.federation.meeting
        node_of = {place: meeting.node(m.identity) for place, m in enumerate(commit.members)}
        place_of = {
            node: place
            for place, node in node_of.items()
            if node is not None and commit.present[place]
        }
        self.withdrawn, self.left = {}, {}
        for node, reply in self._sent.pull():
            place = place_of.get(node)
            if place is None:
                continue
            identity, fields = commit.members[place].identity, reply.fields
            if reply.failure == CommitUnknown.__name__:
                meeting.commits.pop(identity, None)
            if reply.sender == node and "withdrew" in fields:
                with contextlib.suppress(Exception):  # whatever a site sends, the round goes on
                    meeting.take_leave(fields)
                    self.left[place] = meeting.farewells[identity]
            if reply.sender != node or fields.get("digest") != commit.digest:
                continue
            meeting.commits[identity] = commit
            if place in commit.set_aside and round_number % ROUNDS_BETWEEN:
                continue
            with contextlib.suppress(Exception):  # whatever a site sends, the round goes on
                if (found := reported(fields, commit, place)) is not None:
                    self.withdrawn[place] = found
        wanted = {*commit.quarantined, *others}
        busy = set(self._sent.waiting.values())
        free = [node for node, place in place_of.items() if place in wanted and node not in busy]
        self._sent.push({node: question(place_of[node]) for node in free}, seconds=seconds)


# Examples that owners withdraw


def reported(fields: Mapping[str, Any], commit: Commit, place: int) -> Withdrawn | None:
    """What a site says it withdrew; None if it says nothing."""
    if "withdrawn" not in fields:
        return None
    member = commit.members[place]
    numbers, n_private = list(fields["withdrawn"]), fields["withdrawn-private"]
    if not all(type(n) is int and 0 <= n < member.n_shareable for n in numbers):
        raise AnswerRefused("malformed")
    if type(n_private) is not int or not 0 <= n_private <= member.n_private:
        raise AnswerRefused("malformed")
    found = Withdrawn(tuple(numbers), n_private, str(fields["withdrawal-signature"]))
    has_all = set(commit.withdrawn[place]) <= set(numbers)  # it takes nothing back of what it said
    if not (has_all and n_private >= commit.withdrawn_private[place]):
        raise AnswerRefused("malformed")
    if numbers != sorted(set(numbers)) or not found.is_signed(member.identity, commit):
        raise AnswerRefused("malformed")
    return found


def commit_without(
    federation: ServerFederation,
    taken_back: Mapping[int, Withdrawn],
    left: Mapping[int, str],
    offenders: Mapping[int, Offence],
) -> bool:
    """Commit anew without what sites took back, those that left and the offenders, by place.

    `left` has the farewells of those that left. Returns whether there was anything new in it.
    """
    commit = federation.commit
    for place, withdrawn in taken_back.items():
        commit = withdraw(commit, place, withdrawn)
    for place in sorted(left):
        if commit.present[place]:
            commit = commit.without(place, left[place])
    commit = with_offenders(federation.quarantine, commit, offenders)
    is_new = commit.order != federation.commit.order
    if is_new:
        federation.record(commit)
        logger.info("commit %s: %d examples are left", commit.order, commit.n_examples)
    return is_new


def withdraw(commit: Commit, place: int, taken_back: Withdrawn) -> Commit:
    """The next commit, without what the site at `place` took back; the same if that is nothing."""
    if taken_back == listed_in(commit, place):
        return commit
    return commit.with_withdrawn(
        place, taken_back.numbers, taken_back.n_private, taken_back.signature
    )


# What is remembered of it


def forgotten(before: Commit | None, after: Commit) -> set[str] | None:
    """The sites, by identity, whose answers are to be forgotten: they held what is gone.

    After another exchange these are all that hold other examples than before. None, all, if it is
    not known what was before.
    """
    if before is None:
        return None
    if before.number == after.number:
        return {before.members[place].identity for place in holders_of_what_left(before, after)}
    held_copies = {before.members[place].identity for _, place in before.pairs}
    holds_copies = {after.members[place].identity for _, place in after.pairs}
    own = {member.identity: member.manifest for member in after.members_present}
    return {
        member.identity
        for member in before.members
        if member.identity in held_copies | holds_copies
        or own.get(member.identity) != member.manifest
    }


def holders_of_what_left(before: Commit, after: Commit) -> set[int]:
    """The sites, by place, that held examples of one commit that a later one does not have.

    What is remembered of their answers contains those examples. A holder whose shares merely
    changed is not among them: what is remembered of it is still close to what it will answer.
    """
    found: set[int] = set()
    recipients_of: dict[int, set[int]] = {}
    for sender, recipient in before.pairs:
        recipients_of.setdefault(sender, set()).add(recipient)
    for place in range(len(before.members)):
        recipients = recipients_of.get(place, set())
        if before.present[place] and not after.present[place]:
            found |= {place} | recipients
        gone = sorted(set(after.withdrawn[place]) - set(before.withdrawn[place]))
        if gone or after.withdrawn_private[place] > before.withdrawn_private[place]:
            drawn = before.draw.recipients_of(place, np.array(gone, np.int64))
            found |= {place} | (recipients & set(drawn.ravel().tolist()))
        if place in after.quarantined and place not in before.quarantined:
            found.add(place)
        if place in after.set_aside and place not in before.set_aside:
            found |= {place} | recipients
    return found
