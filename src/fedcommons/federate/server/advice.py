"""What can be done about what a site refuses, by the name of its refusal."""

from __future__ import annotations

from collections.abc import Iterable

from fedcommons.federate.protocol import versions

ADVICE = {
    "DataChanged": "its data changed since the exchange, reshare = true takes them in",
    "StoreIsOlder": "its store is older than a withdrawal that it made, from a backup perhaps; "
    "its operator must withdraw those examples again",
    "LocalStepsIgnored": "its training function returns a gradient; with several local steps or "
    "batches it must loop over site.batches and return the trained arrays",
    "SeveralStepsRefused": "its training function takes several steps, which the owner-corrected "
    "code does not allow for; choose code = equal-split",
    "ExamplesIgnored": "its training function must take its examples from site.batches, "
    "site.dataloader or site.examples",
    "TooFewExamples": "its policy wants more examples in an answer (min-examples)",
    "BatchTooSmall": "its policy wants larger batches (min-examples); batch-size = 0 is all",
    "TooManySteps": "its policy allows for fewer steps (max-local-steps)",
    "RosterTooSmall": "its policy wants more sites in an exchange (min-sites)",
    "TooManyCopies": "its policy allows for fewer copies (max-copies, share-with-all)",
    "ExchangeNotApproved": "its operator must run `fedcommons federate approve` there first",
    "DrawRefused": "too many draws came to nothing, or this one was not kept to; its operator can "
    "run `fedcommons federate approve`",
    "CommitRefused": "the commit does not follow from what it knows: compare the digests that "
    "`fedcommons federate status` shows at the sites; `federate recover` brings it back",
    "AppNotReviewed": "its operator has not reviewed this app: `fedcommons federate review`",
    "NotConfirmed": "it has heard of no other site under this commit for too long",
    **versions.ADVICE,
}


def about(reasons: Iterable[str]) -> str:
    """Advice on each of these reasons, behind a colon; nothing if there is none."""
    found = [f"{why}: {ADVICE[why]}" for why in dict.fromkeys(reasons) if why in ADVICE]
    return "; " + "; ".join(found) if found else ""
