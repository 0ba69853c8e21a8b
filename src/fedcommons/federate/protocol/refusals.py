"""Why a party refuses something. Only the name of the class ever crosses the wire."""

from fedcommons.errors import FederationError


class Refusal(FederationError):  # noqa: N818 (its name is what others read)
    """Something that was asked for or sent is refused."""


class MalformedRecord(Refusal):
    """A record that cannot be what it claims to be."""


class WrongFederation(Refusal):
    """A message of another federation."""


class PeersNotPinned(Refusal):
    """The site has no pinned keys of its peers, and may not trust them on first use."""


class RosterRefused(Refusal):
    """The roster lists a wrong key for a site, or an offer that its site did not sign."""


class LayoutRefused(Refusal):
    """A site's examples differ from this site's in type, shape or columns."""


class EpochRefused(Refusal):
    """An epoch that is not new, or for which the site never offered a key."""


class EnvelopeRefused(Refusal):
    """An envelope that is damaged or forged, or meant for another recipient or epoch."""


class CommitRefused(Refusal):
    """A commit that contradicts what the site knows."""


class CommitUnknown(Refusal):
    """The site is not under the commit that a message names by its digest alone."""


class DataChanged(Refusal):
    """The site's data are not those that it offered, so a new epoch is needed."""


class SiteWithdrew(Refusal):
    """The site's operator withdrew everything."""


class StoreIsOlder(Refusal):
    """The site's store does not know of all that the site withdrew: an old backup, perhaps."""


class LocalStepsIgnored(Refusal):
    """The training function returned a gradient, but several steps or batches were asked for."""


class SeveralStepsRefused(Refusal):
    """The training function takes several steps, but the code allows for one alone."""


class ExamplesIgnored(Refusal):
    """The training function did not ask the site for the examples that it trains on."""


class ScaleRefused(Refusal):
    """A scale that does not fit the site's inputs, or inputs that have none of their own."""


class TooFewExamples(Refusal):
    """The site has too few examples of its own to tell anything of them all together."""


class MeansWithheld(Refusal):
    """The site's operator does not let it tell means and deviations."""


class ModRefused(Refusal):
    """A mod of the site's app does not go with `coded`, or not in the place where it is."""


class ModelChanged(Refusal):
    """The model is not the one that the server sent: something on the way changed it."""


class ReplyWithoutContent(Refusal):
    """The app's function, or a mod around it, replied with an error instead of content."""


class NothingMeasured(Refusal):
    """The app's evaluate function returned no metrics."""


class AnswerRefused(Refusal):
    """An answer to a training message that must not count."""


class QuestionRefused(Refusal):
    """A question whose number is not above that of the last one that the site answered."""


class ChangeRefused(Refusal):
    """A commit changes shares of too few examples, or too often, and no owner signed for it."""


class FitsRefused(Refusal):
    """Work that fits is asked for together with what it does not go with."""


class BatchTooSmall(Refusal):
    """The batches that are asked for are smaller than the site's policy allows."""


class TooManySteps(Refusal):
    """More local steps are asked for than the site's policy allows."""


class RosterTooSmall(Refusal):
    """An exchange among fewer sites than the site's policy wants."""


class TooManyCopies(Refusal):
    """More sites would be sent the same example than the site's policy allows."""


class ExchangeNotApproved(Refusal):
    """A further exchange, which the site's operator has not approved."""


class GroundMissing(Refusal):
    """A row may be shared and has no ground for it, which the site's policy wants."""


class DrawRefused(Refusal):
    """A draw that did not follow from what all sites promised, or one too many."""


class NotConfirmed(Refusal):
    """No other site is known to be under the commit that this site has answered under."""


class AppNotReviewed(Refusal):
    """The app that runs is none of those that the site's policy names."""
