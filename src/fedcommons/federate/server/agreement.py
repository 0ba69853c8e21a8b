"""The agreement check at the server: it relays sealed sketches, and judges by who agrees with whom.

A pair that disagrees does not say which of the two is wrong. A site that disagrees with most of
those it sent to, or with most of those it got from, while these agree among each other, is named.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedcommons import shown
from fedcommons.federate.protocol.agreement import COMPARE, KEY, SEAL, bytes_of_all
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.model_schema import NamedArrays
from fedcommons.federate.server import withdrawals
from fedcommons.federate.server.answers import AnswerCollector
from fedcommons.federate.server.quarantine import Offence

logger = shown.logger(__name__)

THOSE = ("those it sent examples to", "those it has examples of")

_Part = tuple[int, int]  # a place, and whether as an owner, 0, or a recipient, 1
_Pair = tuple[int, int]
Pairs = Mapping[_Pair, bool]  # (owner, recipient), by place -> whether they agree


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found.

    Attributes:
        n_pairs: how many pairs compared.
        named: who differs from most, by place, and how.
        disputed: other pairs that disagree.
        conclusive: False where so many differ that it is not the sites.
    """

    n_pairs: int
    named: dict[int, str] = field(default_factory=dict)
    disputed: tuple[tuple[int, int], ...] = ()
    conclusive: bool = True


def judge(pairs: Pairs) -> Verdict:
    """Who is wrong, as far as pairs tell: the site that disagrees with most, one after another."""
    n_of, n_against, pairs_of = Counter[_Part](), Counter[_Part](), dict[int, list[_Pair]]()
    for pair, agrees in pairs.items():
        for role, place in enumerate(pair):
            n_of[place, role] += 1
            n_against[place, role] += not agrees
            pairs_of.setdefault(place, []).append(pair)
    left, named = dict(pairs), dict[int, str]()
    while True:
        found = [
            (against / n_of[part], against, -part[0], part[1])
            for part, against in n_against.items()
            if n_of[part] >= 2 and 2 * against > n_of[part]
        ]
        if not found:
            break
        _, against, minus_place, role = max(found)
        wrong = -minus_place
        n = n_of[wrong, role]
        named[wrong] = f"it computes other gradients than {against} of {n} of {THOSE[role]}"
        for pair in pairs_of[wrong]:
            if pair in left:
                agrees = left.pop(pair)
                for part in ((pair[0], 0), (pair[1], 1)):
                    n_of[part] -= 1
                    n_against[part] -= not agrees
    disputed = tuple(pair for pair, yes in left.items() if not yes)
    if 2 * len(named) >= max(len(pairs_of), 1):
        return Verdict(len(pairs), {}, tuple(p for p, yes in pairs.items() if not yes), False)
    return Verdict(len(pairs), named, disputed)


def check(collector: AnswerCollector, model: NamedArrays) -> Verdict:
    """Ask all members that are there; who is named is quarantined."""
    federation, commit = collector.federation, collector.federation.commit
    verdict = judge(_compared(collector, model, commit))
    names = [member.site for member in commit.members]
    disputed = ", ".join(f"{names[o]} and {names[r]}" for o, r in verdict.disputed)
    if not verdict.conclusive:
        logger.error(
            "agreement check: too many sites compute different gradients of the same examples for "
            "any to be named: is the training function random, or its software different? %s",
            disputed,
        )
    elif disputed:
        logger.warning(
            "agreement check: %s compute different gradients of the same examples, and nobody else "
            "tells which is right",
            disputed,
        )
    logger.info(
        "agreement check: %d pairs compared, %d sites named", verdict.n_pairs, len(verdict.named)
    )
    offenders = {place: Offence(why) for place, why in verdict.named.items()}
    withdrawals.commit_without(federation, {}, {}, offenders)
    return verdict


def _compared(collector: AnswerCollector, model: NamedArrays, commit: Commit) -> Pairs:
    nonce = {"audit-nonce": secrets.token_bytes(16)}
    sealed: dict[int, dict[int, bytes]] = {}  # by recipient and owner
    agrees: dict[tuple[int, int], bool] = {}
    pairs = set(commit.pairs)
    recipients: dict[int, list[int]] = {}
    for sender, recipient in commit.pairs:
        recipients.setdefault(sender, []).append(recipient)

    def key(fields: Mapping[str, Any]) -> tuple[bytes, bytes]:
        public, signature = bytes_of_all((fields["audit-key"], fields["audit-signature"]))
        return public, signature

    def envelopes(fields: Mapping[str, Any]) -> dict[int, bytes]:
        parts = bytes_of_all(fields["audit-sealed"])
        return dict(zip(map(int, fields["audit-places"]), parts, strict=True))

    def comparisons(fields: Mapping[str, Any]) -> dict[int, bool]:
        places, agrees = map(int, fields["audit-places"]), map(bool, fields["audit-agrees"])
        return dict(zip(places, agrees, strict=True))

    keys = collector.asked(model, KEY, lambda _place: nonce, key)

    def of_recipients(owner: int) -> dict[str, Any]:
        places = [place for place in recipients.get(owner, ()) if place in keys]
        return {
            **nonce,
            "audit-places": places,
            "audit-keys": [keys[place][0] for place in places],
            "audit-signatures": [keys[place][1] for place in places],
        }

    for owner, parts in collector.asked(model, SEAL, of_recipients, envelopes).items():
        for place, part in parts.items():
            sealed.setdefault(place, {})[owner] = part

    def of_owners(recipient: int) -> dict[str, Any]:
        mine = sealed.get(recipient, {})
        public, _ = keys.get(recipient, (b"", b""))
        places = {"audit-places": list(mine), "audit-sealed": list(mine.values())}
        return {**nonce, "audit-key": public, **places}

    for recipient, found in collector.asked(model, COMPARE, of_owners, comparisons).items():
        for owner, yes in found.items():
            if (owner, recipient) in pairs and owner in sealed.get(recipient, {}):
                agrees[owner, recipient] = yes
    return agrees
