"""A site's part in the agreement check: its key, sketches sealed to recipients, comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fedcommons import shown
from fedcommons.checks import FloatArray
from fedcommons.federate.protocol import agreement, envelope, holders
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.envelope import Context, federation_digest
from fedcommons.federate.protocol.keys import is_signed
from fedcommons.federate.protocol.refusals import EnvelopeRefused, Refusal
from fedcommons.federate.site.participant import Participant

logger = shown.logger(__name__)

GradientOf = Callable[[int], FloatArray]
"""The place of a peer -> the sum of the gradients of what was exchanged with it, (P,)."""


class Agreement:
    """One site in one check, under its commit; `me` is its place."""

    def __init__(self, site: Participant, commit: Commit, me: int, nonce: bytes) -> None:
        self.site, self.commit, self.me = site, commit, me
        self.audit = agreement.digest_of(commit, nonce)
        self._identity = site.identity_in(commit.members)
        self._counts = holders.delivered(commit)

    def key(self) -> tuple[bytes, bytes]:
        """A fresh key for this check, and this site's signature of it."""
        public = self.site.store.keyring.fresh_key()
        statement = agreement.key_statement(self.audit, public)
        return public, self._identity.sign("agreement", statement)

    def seal(
        self, keys: Mapping[int, tuple[bytes, bytes]], gradient_of: GradientOf
    ) -> dict[int, bytes]:
        """For each recipient the sketch of what it got from this site, sealed to its key.

        A key that the recipient did not sign is the server's own, perhaps: nothing is sealed to it.
        """
        found = {}
        for place, (key, signature) in keys.items():
            if not self._counts[self.me, place]:
                continue
            identity = bytes.fromhex(self.commit.members[place].identity)
            statement = agreement.key_statement(self.audit, key)
            if not is_signed(identity, "agreement", statement, signature):
                logger.warning(
                    "the key of site %s for the agreement check is not signed by it",
                    self.commit.members[place].site,
                )
                continue
            values = agreement.sketch(gradient_of(place), self.audit)
            context = self._context(self.me, place)
            found[place] = envelope.seal(
                agreement.pack(values), context, to_key=key, sender=self._identity
            )
        return found

    def compare(
        self, key: bytes, sealed: Mapping[int, bytes], gradient_of: GradientOf
    ) -> dict[int, bool]:
        """Whether this site agrees with each owner; its key is destroyed then."""
        private = self.site.store.keyring.private_key(key)
        found = {}
        for place, data in sealed.items():
            if private is None or not self._counts[place, self.me]:
                continue
            try:
                theirs = self._opened(place, data, private)
            except Refusal as refusal:
                logger.warning("a sketch is refused: %s", type(refusal).__name__)
                found[place] = False
                continue
            mine = agreement.sketch(gradient_of(place), self.audit)
            found[place] = agreement.agree(theirs, mine)
            if not found[place]:
                logger.warning(
                    "this site computes another gradient than %s of the examples that it got from "
                    "there",
                    self.commit.members[place].site,
                )
        with self.site.store.database.writing("store.audited"):
            self.site.store.keyring.destroy([key])
        return found

    def _opened(self, place: int, data: bytes, private: bytes) -> FloatArray:
        expected = self._context(place, self.me)
        context, content = envelope.unseal(
            data,
            federation=expected.federation,
            epoch=self.audit,
            recipient=expected.recipient,
            senders={expected.sender},
            key=private,
            largest=8 * agreement.SKETCH,
        )
        if context != expected:
            raise EnvelopeRefused("the sketch is of another pair")
        return agreement.unpack(content)

    def _context(self, sender: int, recipient: int) -> Context:
        members = self.commit.members
        return Context(
            federation_digest(self.commit.federation),
            self.audit,
            bytes.fromhex(members[sender].identity),
            bytes.fromhex(members[recipient].identity),
            0,
            1,
        )
