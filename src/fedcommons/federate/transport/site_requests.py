"""A site's side of every message, in plain records: any transport can carry them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.coding import CODES
from fedcommons.federate.protocol import (
    absences,
    agreement,
    scale_fields,
    statements,
    versions,
)
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.farewells import farewell
from fedcommons.federate.protocol.model_schema import NamedArrays, digest_of
from fedcommons.federate.protocol.receipts import Receipt
from fedcommons.federate.protocol.records import SignedOffer
from fedcommons.federate.protocol.refusals import MeansWithheld, ModelChanged
from fedcommons.federate.protocol.rotations import Rotations
from fedcommons.federate.protocol.statements import is_under
from fedcommons.federate.protocol.withdrawals import Withdrawn
from fedcommons.federate.site import questions, standardisation
from fedcommons.federate.site.batch_order import batch_order
from fedcommons.federate.site.decoded import decoded_commit
from fedcommons.federate.site.following import Proof
from fedcommons.federate.site.site import Site
from fedcommons.federate.transport import agreement_answer, coded_answer, fitted_answer
from fedcommons.federate.transport.coded_answer import Train
from fedcommons.federate.transport.weighted_examples import WeightedExamples
from fedcommons.scaling import Scale

Fields = Mapping[str, Any]

KEPT_FIELDS = (
    "digest",
    "round",
    "question",
    "coverage",
    "answer-digest",
    "chunks",
    absences.ANCHORS,
    absences.SIZES,
)  # with an answer that is kept


@dataclass(frozen=True, slots=True)
class SiteReply:
    """What a site replies; what it refuses it raises."""

    fields: dict[str, Any]
    envelopes: Sequence[bytes] = ()
    answer: NamedArrays | None = None
    correction: NamedArrays | None = None


@dataclass(slots=True)
class SiteRequests:
    """Answers the server's questions at one site."""

    site: Site
    tells_means: bool = True
    _read: tuple[object, npt.NDArray[Any], npt.NDArray[Any]] | None = field(
        default=None, init=False
    )

    def offer(self, request: Fields, *, node_id: int, run_id: int) -> SiteReply:
        """Say who this is; a site that withdrew everything takes its leave instead."""
        versions.check_request(request)
        store, federation = self.site.store, str(request["federation"])
        if store.withdrawals.everything and store.federation == federation:
            return self._farewell()
        if request.get(versions.FIELD, 0) < 3 and not self.site.data.form.has_class_numbers:
            raise versions.ServerIsOlder("the server knows no labels but class numbers")
        digest, record = store.commit_record()
        signed = self.site.exchange.offer(
            federation,
            node_id=node_id,
            run_id=run_id,
            with_key=bool(request["with-key"])
            and not (digest and bool(request.get("unless-committed"))),
            committed=request["committed"],
            seed=request.get("seed"),
        )
        return SiteReply(
            {
                versions.FIELD: versions.CURRENT,
                "offer": signed.content,
                "signature": signed.signature,
                "commit": b"" if digest == request.get("known", b"") else record,
                "answered": store.questions.last,
                **self._rotations(signed),
                **_fields_of(self.site.withdrawn_by_now()),
            }
        )

    def _farewell(self) -> SiteReply:
        """The site withdrew everything, and signs it with all the keys that it has had."""
        federation = str(self.site.store.federation)
        *before, now = self.site.store.keyring.identities
        farewells: dict[str, Any] = {
            versions.FIELD: versions.CURRENT,
            "withdrew": now.name,
            "signature": farewell(now, federation),
        }
        if before:
            farewells["withdrew-also"] = [old.name for old in before]
            farewells["also-signed"] = [farewell(old, federation) for old in before]
        return SiteReply(farewells)

    def _rotations(self, offer: SignedOffer) -> dict[str, Any]:
        """The site's other keys, where it offers to go on with what it began under an older one.

        The server may know it by a later one already. Whoever has the old key alone is not it.
        """
        own = self.site.store.keyring.identities
        if offer.checked().identity == own[-1].name:
            return {}
        signature = own[-1].sign("successor", offer.content)
        return {"rotations": Rotations.of(own).encode(), "successor-signature": signature}

    def draw(self, request: Fields) -> SiteReply:
        """Reveal this site's part of the draw."""
        versions.check_request(request)
        return SiteReply({"value": self.site.exchange.reveal(request["epoch"])})

    def send(self, request: Fields) -> SiteReply:
        versions.check_request(request)
        envelopes, _ = self.site.exchange.send(
            request["epoch"], list(request["recipients"]), int(request["chunk"])
        )
        return SiteReply(
            {"recipients": [recipient for recipient, _ in envelopes]},
            envelopes=[sealed for _, sealed in envelopes],
        )

    def receive(self, request: Fields, envelopes: Sequence[bytes]) -> SiteReply:
        versions.check_request(request)
        receipts, refused = self.site.exchange.receive(request["epoch"], envelopes)
        return SiteReply(
            {
                "senders": [receipt.sender for receipt in receipts],
                "examples": [receipt.examples for receipt in receipts],
                "signatures": [receipt.signature for receipt in receipts],
                "refused": list(refused),
                "refused-counts": list(refused.values()),
            }
        )

    def answer(
        self, request: Fields, model: NamedArrays, train: Train, *, config: Fields | None = None
    ) -> SiteReply:
        """Apply the commit, let the app train on what it gives this site, code the answer.

        `config` is what the server tells the app's training function. An answer that takes long is
        kept in the store until the next question, which says that the server has it.
        """
        start = time.monotonic()
        versions.check_request(request)
        site = self.site
        if site.store.withdrawals.everything:
            return self._farewell()
        model_digest = _checked_model(request, model)
        record = request["commit"] or site.record_of(request.get("digest", b""))
        own = site.identity_in(decoded_commit(record).members)
        receipts = _receipts(own.name, request) if request.get("receipt-recipients") else []
        proof = Proof(receipts, list(request.get("receipt-path", ())))
        commit = site.apply_commit(record, given_up=int(request["given-up"]), proof=proof)
        if receipts:
            site.note_receipts(commit, receipts)
        me = site.place(commit)
        withdrawn = site.withdrawn_since(commit)
        fields: dict[str, Any] = {
            "digest": commit.digest,
            "round": int(request["round"]),
            "question": request.get("question", 0),
            "statement": statements.sign(own, commit),
        }
        if request.get("newcomers"):
            newcomers = dict(zip(request["newcomers"], request["newcomer-keys"], strict=True))
            fields["welcome"] = site.would_train_with(newcomers)
        if withdrawn is not None:
            return SiteReply(fields | _fields_of(withdrawn))
        if request["task"] == "report":  # the site is quarantined
            return SiteReply(fields)
        number = site.store.questions.check_new(request.get("question"))
        if request["task"] == "kept":
            site.store.questions.note_measured(number)
            return self._kept(request, fields)
        if request["task"] in agreement.TASKS:
            site.store.questions.note_measured(number)
            return SiteReply(fields | agreement_answer.reply(site, commit, request, model, train))
        others = _others_under(commit, me, request)
        held, n_own = site.holdings(commit), len(site.holdings(commit).own)
        fields["coverage"] = held.coverage
        if request["task"] == "moments":
            if not self.tells_means:
                raise MeansWithheld("node config: tell-means is false")
            site.store.questions.note(number, commit, others, site.policy)
            own_x = site.rows.examples(site.manifest_of(commit))[0]
            questions.check_measured(site.policy, len(own_x))
            fields |= scale_fields.of_moments(standardisation.own_moments(site.data, own_x))
            return SiteReply(fields)
        scale = scale_fields.scale_of(request)
        if request["task"] == "owner-share":
            site.store.questions.note(number, commit, others, site.policy)
            fields["owner-share"] = self._owner_share(commit, scale, model, train)
            return SiteReply(fields)
        if scale is None and int(request["round"]) <= 1:
            standardisation.warn_of_scales(site.data)
        steps, size = int(request["local-steps"]), int(request["batch-size"])
        questions.check_steps(site.policy, steps, size)
        questions.check_examples(site.policy, held.shares, n_own)
        site.store.changes.check(site.policy, commit, me, held.own)
        site.store.questions.note(number, commit, others, site.policy)
        x, y = self._examples(commit, scale)
        asked = {
            "steps": steps,
            "size": size,
            "scale": scale_fields.of_scale(scale),
            **(config or {}),
        }
        examples = WeightedExamples(
            x,
            y,
            held.shares,
            steps,
            size,
            CODES[commit.code].one_step,
            batch_order(site, commit, fields["round"], model=model_digest, asked=asked),
            site.policy.min_examples,
        )
        training, correction = str(request.get("training", "")), None
        site.store.kept.drop(training)
        if request.get("work"):
            about = (commit, request, model, model_digest.hex())
            fitted = fitted_answer.answer(site, *about, examples, train)
            fields["chunks"], answer, correction = (
                *(fitted.n_chunks, fitted.answer),
                fitted.correction,
            )
            fields |= fitted.fields
        else:
            answer = coded_answer.answer(model, examples, train)
        fields["answer-digest"] = digest_of(answer)
        beside = {} if correction is None else {"correction-digest": digest_of(correction)}
        if time.monotonic() - start >= request.get("keep-after", math.inf):
            self._keep(training, number, fields, answer, commit)
        return SiteReply({**fields, **beside}, answer=answer, correction=correction)

    def _keep(
        self,
        training: str,
        number: int,
        fields: Fields,
        answer: NamedArrays,
        commit: Commit,
    ) -> None:
        """Keep an answer, unless the operator withdrew some of what it is made of meanwhile."""
        is_whole = self.site.withdrawn_since(commit) is None
        if is_whole and not self.site.store.withdrawals.everything:
            about = {name: fields[name] for name in KEPT_FIELDS if name in fields}
            self.site.store.kept.keep(training, number, about, answer)

    def _kept(self, request: Fields, fields: dict[str, Any]) -> SiteReply:
        """The answer to an earlier question, if it is here; the digest is of its own commit."""
        number = request["kept-question"]
        found = self.site.store.kept.find(str(request["training"]), int(number))
        if found is None:
            return SiteReply({**fields, "kept": False})
        about, answer = found
        return SiteReply({**fields, **about, "kept": True}, answer=answer)

    def evaluate(self, request: Fields, model: NamedArrays) -> SiteReply:
        """Whether to measure this model; the metrics are the app's."""
        versions.check_request(request)
        self.site.check_taking_part()
        self.site.record_of(request["digest"])
        _checked_model(request, model)
        asked = self.site.store.questions
        asked.note_measured(asked.check_new(request.get("question")))
        return SiteReply({"round": int(request["round"]), "question": request["question"]})

    def _owner_share(
        self, commit: Commit, scale: Scale | None, model: NamedArrays, train: Train
    ) -> float:
        """The owner's best w; where too few examples are shared, or not, one without their help."""
        held, least = self.site.holdings(commit), self.site.policy.min_examples
        n_own, shared = len(held.own), held.own_shared
        n_shared = int(shared.sum())
        if 0 < n_shared < least or 0 < n_own - n_shared < least:
            return 1 / (commit.copies + 1)
        x, y = self._examples(commit, scale)
        copies = held.placement.copies[:n_own]
        return coded_answer.owner_share(model, train, x[:n_own], y[:n_own], shared, copies)

    def _examples(
        self, commit: Commit, scale: Scale | None
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Everything that the site holds, its own examples first, on the scale that is asked for.

        It is read once for each commit and scale.
        """
        known_as = (commit.digest, scale_fields.of_scale(scale))
        if self._read is None or self._read[0] != known_as:
            site = self.site
            own_x, own_y = site.rows.examples(site.manifest_of(commit))
            received = [
                site.received_examples(commit, sender)
                for sender, _ in site.holdings(commit).senders
            ]
            x = np.concatenate([own_x, *(part for part, _ in received)])
            x = standardisation.scaled(site.data, x, scale)
            y = np.concatenate([own_y, *(part for _, part in received)])
            self._read = (known_as, x, y)
        return self._read[1], self._read[2]


def _fields_of(withdrawn: Withdrawn | None) -> dict[str, Any]:
    if withdrawn is None:
        return {}
    return {
        "withdrawn": list(withdrawn.numbers),
        "withdrawn-private": withdrawn.n_private,
        "withdrawal-signature": withdrawn.signature,
    }


def _others_under(commit: Commit, me: int, request: Fields) -> list[str]:
    """Other members that signed that they are under this commit, by identity."""
    others = {member.identity for member in commit.members_present}
    others.discard(commit.members[me].identity)
    said = zip(request.get("others", ()), request.get("other-statements", ()), strict=True)
    return [who for who, signature in said if who in others and is_under(who, commit, signature)]


def _checked_model(request: Fields, model: NamedArrays) -> bytes:
    """The digest of a model; one that something changed on its way to here is refused."""
    digest = digest_of(model)
    if "model-digest" in request and digest != request["model-digest"]:
        raise ModelChanged(
            "the model is not the one that the server sent: a mod outside coded or evaluated, or "
            "the strategy, changed it"
        )
    return digest


def _receipts(sender: str, request: Fields) -> list[Receipt]:
    columns = (request[f"receipt-{name}"] for name in ("recipients", "examples", "signatures"))
    return [
        Receipt(sender, recipient, examples, signature)
        for recipient, examples, signature in zip(*columns, strict=True)
    ]
