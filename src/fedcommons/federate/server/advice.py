"""What to do about the refusals of a site, of which only the name arrives."""

from __future__ import annotations

from collections.abc import Iterable

from fedcommons.federate.protocol import versions

CHANGED = "not what coded made"  # an answer

ADVICE = {
    "DataChanged": "its data are not those of the exchange. If they changed, reshare = true takes "
    "them in; if an app divides its data among the sites, their number must be the exchange's",
    "StoreIsOlder": "its store is older than a withdrawal that it made, from a backup perhaps; "
    "its operator must withdraw those examples again",
    "LocalStepsIgnored": "its training function returns a gradient; with several local steps or "
    "batches it must loop over site.batches and return the trained arrays",
    "SeveralStepsRefused": "its training function takes several steps, which the owner-corrected "
    "code does not allow for; choose code = equal-split",
    "ExamplesIgnored": "its training function must take its examples from site.batches, "
    "site.dataloader or site.examples",
    "BatchTooSmall": "its policy wants larger batches (min-examples); batch-size = 0 is all",
    "TooManySteps": "its policy allows for fewer steps (max-local-steps)",
    "GroundMissing": "rows that it may share have no ground (require-ground in its policy)",
    "ChangeRefused": "the commit changes too little there for its policy (min-change), or is one "
    "change too many, and no owner signed for it: its operator must run `fedcommons federate "
    "approve --change`",
    "RosterTooSmall": "its policy wants more sites in an exchange (min-sites)",
    "TooManyCopies": "its policy allows for fewer copies (max-copies, share-with-all)",
    "ExchangeNotApproved": "its operator must run `fedcommons federate approve` there first",
    "DrawRefused": "too many draws came to nothing, or this one was not kept to; its operator can "
    "run `fedcommons federate approve`",
    "CommitRefused": "the commit does not follow from what it knows: compare the digests that "
    "`fedcommons federate status` shows at the sites; `federate recover` brings it back",
    "AppNotReviewed": "its operator has not reviewed this app: `fedcommons federate review`",
    "NotConfirmed": "it has heard of no other site under this commit for too long",
    "ModRefused": "a mod of its app does not go with coded; the site's log says which, and why",
    "ModelChanged": "the model that its app would get is not the one that the server sent: a mod "
    "outside coded or evaluated changed it, or the strategy's configure_train or "
    "configure_evaluate",
    "ReplyWithoutContent": "its app's function, or a mod around it, replied with an error; the "
    "site's log says more",
    "NothingMeasured": "its evaluate function must return a MetricRecord",
    "ScaleRefused": 'scale = "standard" is for tables: flat inputs of numbers that are no bytes',
    "TooFewExamples": "it has too few examples for what is asked, by its policy (min-examples); a "
    "site that tells no means for that trains all the same",
    "MeansWithheld": "its node config says tell-means = false; it trains all the same",
    CHANGED: "a mod outside coded changed its answer; put it behind coded, as in "
    "mods=[coded(site), mod]",
    **versions.ADVICE,
}


def advice(why: str) -> str:
    """What to add to a reason; nothing if there is nothing to say."""
    return f": {ADVICE[why]}" if why in ADVICE else ""


def about(reasons: Iterable[str]) -> str:
    """Advice on each of these reasons; nothing if there is none."""
    return "".join(f"; {why}{advice(why)}" for why in dict.fromkeys(reasons) if advice(why))
