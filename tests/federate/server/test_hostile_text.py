"""Whatever a site writes into its replies, the server's log has its own lines alone."""

import pytest
from flwr.app import ConfigRecord, Error, Message

from fedcommons.errors import FedcommonsError
from fedcommons.federate.server.link import LONGEST_NAME, class_of
from fedcommons.federate.server.round_notes import RoundNote, SiteNote, log_round
from fedcommons.federate.transport import messages
from tests.federate.server.trouble import Troubled
from tests.hostile import HOSTILE, assert_lines_are_safe

pytestmark = pytest.mark.usefixtures("impatient")
KINDS = [messages.OFFER, messages.SEND, messages.RECEIVE, messages.TRAIN]


def hostile(value):
    """A field's value with every text in it replaced; of numbers and bytes the kind stays."""
    if isinstance(value, list):
        return [hostile(entry) for entry in value] or [HOSTILE]
    return HOSTILE if isinstance(value, str) else value


def every_text(_message: Message, reply: Message) -> Message:
    fields = reply.content[messages.FIELDS]
    reply.content[messages.FIELDS] = ConfigRecord({k: hostile(v) for k, v in fields.items()})
    return reply


def every_field(_message: Message, reply: Message) -> Message:
    fields = reply.content[messages.FIELDS]
    reply.content[messages.FIELDS] = ConfigRecord(dict.fromkeys(fields, HOSTILE))
    return reply


def refused_all(_message: Message, reply: Message) -> Message:
    fields = dict(reply.content[messages.FIELDS])
    if "refused" in fields:
        fields |= {"refused": [HOSTILE, "EnvelopeRefused"], "refused-counts": [1, 2]}
    reply.content[messages.FIELDS] = ConfigRecord(fields)
    return reply


def error(message: Message, _reply: Message) -> Message:
    return Message(Error(2, HOSTILE), reply_to=message)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trouble", [every_text, every_field, refused_all, error])
def test_no_reply_forges_a_line(tiny, caplog, capfd, kind, trouble):
    grid = tiny.grid(Troubled)
    grid.kind, grid.trouble = kind, trouble
    try:
        tiny.run(1, grid=grid)
    except FedcommonsError as ended:
        assert_lines_are_safe(str(ended))
    assert caplog.records
    for record in caplog.records:
        assert "\n" not in record.getMessage()
        assert_lines_are_safe(record.getMessage())
    printed = capfd.readouterr()
    for line in (printed.out + printed.err).splitlines():
        assert "all well" not in line or line.lstrip("\x1b[0123456789m").startswith("WARN")


def test_a_recipients_reason_is_a_name_or_nothing(tiny, caplog):
    grid = tiny.grid(Troubled)
    grid.kind, grid.trouble = messages.RECEIVE, refused_all
    tiny.run(1, grid=grid)
    assert "exchange: b refused 1: it does not say why" in caplog.text
    assert "exchange: b refused 2: EnvelopeRefused" in caplog.text


@pytest.mark.parametrize(
    "said", [HOSTILE, "", "two words", "a" * LONGEST_NAME, "Größe", 3, None, ["DataChanged"]]
)
def test_what_is_no_class_is_not_taken_over(said):
    assert class_of(said, "crashed") == "crashed"
    assert class_of("DataChanged", "crashed") == "DataChanged"


def test_names_of_metrics_and_outcomes_stay_on_the_rounds_line(caplog):
    caplog.set_level("INFO")
    site = SiteNote(HOSTILE, answered=False, outcome=HOSTILE, straggler_prob=0.5)
    log_round(RoundNote(1, 1.0, (1, 0), (site,), {HOSTILE: 0.5}), 1)
    assert caplog.records
    for record in caplog.records:
        assert record.getMessage().startswith("round 1/1: x")
        assert_lines_are_safe(record.getMessage())
