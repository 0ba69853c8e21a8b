"""What a party declines to do. Only the name of the class ever crosses the wire."""

from fedcommons.errors import FederationError


class Refusal(FederationError):  # noqa: N818 (its name is what others read)
    """Something that was asked or sent is not acceptable."""


class MalformedRecord(Refusal):
    """A record that cannot be what it claims to be."""


class WrongFederation(Refusal):
    """A message of another federation."""


class PeersNotPinned(Refusal):
    """The site has neither its peers' keys nor leave to trust them on first use."""


class RosterRefused(Refusal):
    """The roster names a key that is not its site's, or is not signed by whom it names."""


class LayoutRefused(Refusal):
    """A site's examples have another type, shape or columns than this site's."""


class EpochRefused(Refusal):
    """An epoch that does not increase, or that the site never offered a key for."""


class EnvelopeRefused(Refusal):
    """An envelope that is damaged, forged, or not for this recipient and epoch."""


class CommitRefused(Refusal):
    """A commit that does not follow from what the site knows."""


class DataChanged(Refusal):
    """The site's data are not those that it offered: a new epoch is needed."""


class SiteWithdrew(Refusal):
    """The site's operator withdrew everything."""


class StoreIsOlder(Refusal):
    """The site's store does not know of all that the site withdrew."""


class LocalStepsIgnored(Refusal):
    """The training function returned a gradient where several steps or batches were asked for."""


class AnswerRefused(Refusal):
    """An answer to a training message that must not count."""
