"""Records are canonical, come out as they went in, and are refused for whatever is not right."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcommons.coding import CODES
from fedcommons.federate.protocol import records
from fedcommons.federate.protocol.commit_fields import Member
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.joint_draw import promise
from fedcommons.federate.protocol.keys import Identity, fresh_epoch_key
from fedcommons.federate.protocol.records import Epoch, Offer, SignedOffer, digest, encode
from fedcommons.federate.protocol.refusals import MalformedRecord, Refusal, RosterRefused

VALUE = b"v" * 32
WHO = [Identity(bytes([i]) * 32) for i in range(1, 6)]
names = st.from_regex(records.NAME, fullmatch=True)


def hexadecimal(n: int) -> st.SearchStrategy[str]:
    return st.binary(min_size=n, max_size=n).map(bytes.hex)


@st.composite
def offers(draw, federation: str = "hospitals", who: Identity = WHO[0], site: str | None = None):
    n = draw(st.integers(0, 2**24))  # all together share at most MOST_DRAWN
    return Offer(
        federation,
        site or draw(names),
        who.name,
        draw(st.integers(0, 2**64 - 1)),
        draw(st.integers(0, 2**64 - 1)),
        draw(hexadecimal(32)),
        promise(who.name, VALUE),
        n,
        draw(st.integers(0, n)),
        draw(st.integers(17, 2**40)),
        draw(st.sampled_from(["", "bool 1", "float32 28x28", "int8 3x2x1x5"])),
        draw(hexadecimal(16) | st.just("")),
        draw(hexadecimal(32)),
        draw(st.integers(0, 2**40)),
        draw(hexadecimal(32) | st.just("")),
    )


@st.composite
def epochs(draw):
    sites = sorted(draw(st.sets(names, min_size=2, max_size=5)))
    signed = [
        draw(offers(who=who, site=site)).signed(who) for who, site in zip(WHO, sites, strict=False)
    ]
    return Epoch(
        "hospitals",
        draw(st.integers(1, 2**40)),
        draw(st.integers(0, len(sites) - 1)),
        tuple(signed),
        (VALUE,) * draw(st.sampled_from([0, len(sites)])),
    )


@st.composite
def commits(draw):
    sites = sorted(draw(st.sets(names, min_size=2, max_size=5)))
    n = len(sites)
    members = []
    for who, site in zip(WHO, sites, strict=False):
        n_examples = draw(st.integers(0, 20))
        n_shareable = draw(st.integers(0, n_examples))
        members.append(Member(site, who.name, n_examples, n_shareable, draw(hexadecimal(32))))
    present = tuple(draw(st.booleans()) for _ in sites)
    here = [i for i in range(n) if present[i]]
    both = [(s, r) for s in here for r in here if s != r]
    code = draw(st.sampled_from(tuple(CODES)))
    p = st.floats(0, 1, exclude_max=True)
    w = st.floats(-1e50, 1e50)
    return Commit(
        draw(names),
        draw(st.integers(1, 2**40)),
        draw(st.integers(0, 2**40)),
        draw(hexadecimal(32)),
        draw(st.integers(0, 2**63 - 1)),
        draw(st.integers(0, n - 1)),
        tuple(members),
        present,
        tuple(pair for pair in both if draw(st.booleans())),
        tuple(tuple(sorted(draw(st.sets(_below(m.n_shareable))))) for m in members),
        tuple(draw(st.integers(0, m.n_private)) for m in members),
        code,
        tuple(draw(p) for _ in sites) if code == "reliability-split" else None,
        tuple(draw(w) for _ in sites) if code == "owner-corrected" else None,
    )


def _below(n: int) -> st.SearchStrategy[int]:
    return st.integers(0, n - 1) if n else st.nothing()


@given(offers())
def test_an_offer_comes_out_as_it_went_in(offer):
    assert Offer.decode(offer.encode()) == offer
    assert offer.signed(WHO[0]).checked() == offer


@given(epochs())
def test_an_epoch_comes_out_as_it_went_in(epoch):
    again = Epoch.decode(epoch.record)
    assert again == epoch
    assert again.digest == digest(epoch.record)
    if epoch.values:
        assert again.draw.sites == tuple(site.site for site in epoch.sites)


@given(commits())
def test_a_commit_comes_out_as_it_went_in(commit):
    again = Commit.decode(commit.record)
    assert again == commit
    assert again.digest == commit.digest


def some_epoch(n_sites: int = 3) -> Epoch:
    signed = [
        Offer(
            "hospitals", name, who.name, 7, 8, fresh_epoch_key()[0].hex(),
            promise(who.name, VALUE), 10, 6, 40,
            "float32 6", "", "ab" * 32, 0, "",
        ).signed(who)
        for name, who in zip("abcde"[:n_sites], WHO, strict=False)
    ]  # fmt: skip
    return Epoch("hospitals", 1, 1, tuple(signed), (VALUE,) * n_sites)


EPOCH = some_epoch()
COMMIT = replace(
    Commit.of(EPOCH, ((0, 1), (1, 2))), withdrawn=((0, 3), (), ()), withdrawn_private=(1, 0, 4)
)
RECORDS = [(Offer, EPOCH.sites[0].encode()), (Epoch, EPOCH.record), (Commit, COMMIT.record)]
by_kind = pytest.mark.parametrize(
    ("kind", "record"), RECORDS, ids=lambda v: v.__name__ if isinstance(v, type) else ""
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["\ud800", "a" * 100, 2**63, -1, 0.0, [], {}, [[0, 1]], "ab" * 32]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)  # fmt: skip


@by_kind
@given(data=st.data())
@settings(max_examples=400)
def test_another_value_anywhere_is_refused_or_another_valid_record(kind, record, data):
    """Change one place of the JSON at any depth: a Refusal, or a record that comes out the same."""
    content = json.loads(record)
    at: Any = content
    while True:
        places = list(at) if isinstance(at, dict) else list(range(len(at)))
        place = data.draw(st.sampled_from(places))
        if not (isinstance(at[place], list) and at[place] and data.draw(st.booleans())):
            break
        at = at[place]
    action = data.draw(st.sampled_from(["replace", "remove", "repeat"]))
    if action == "replace":
        at[place] = data.draw(json_values)
    elif action == "remove":
        del at[place]
    elif isinstance(at, list):
        at.append(at[place])
    else:
        at[str(place) + "2"] = at[place]
    changed = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    try:
        found = kind.decode(changed)
    except Refusal:
        return
    assert found.encode() == changed


@by_kind
@given(data=st.data())
@settings(max_examples=400)
def test_other_bytes_are_refused_or_another_valid_record(kind, record, data):
    changed = bytearray(record)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed) - 1))
        cut = data.draw(st.integers(0, 3))
        changed[at : at + cut] = data.draw(st.binary(max_size=3))
    try:
        found = kind.decode(bytes(changed))
    except Refusal:
        return
    assert found.encode() == bytes(changed)


@by_kind
@pytest.mark.parametrize(
    "respell",
    [
        lambda r: b" " + r,
        lambda r: r + b"\n",
        lambda r: r.replace(b",", b", ", 1),
        lambda r: json.dumps(dict(reversed(json.loads(r).items())), separators=(",", ":")).encode(),
        lambda r: r.decode().encode("utf-16"),
        lambda r: b"\xef\xbb\xbf" + r,
        lambda r: r[:-1] + b',"zzz":0}',
        lambda r: b'{"federation":"hospitals",' + r[1:],
        lambda r: r.replace(b"hospitals", b"hospit\\u0061ls", 1),
    ],
    ids=["space", "newline", "spaced", "order", "utf-16", "bom", "more", "twice", "escaped"],
)
def test_a_record_has_one_spelling(kind, record, respell):
    with pytest.raises(MalformedRecord):
        kind.decode(respell(record))


@pytest.mark.parametrize("kind", [Offer, Epoch, Commit])
@pytest.mark.parametrize(
    "record",
    [b"", b"null", b"[]", b'"a"', b"{}", b"[" * 100_000, b'{"a":' * 900 + b"0" + b"}" * 900,
     b'{"a":NaN}', b'{"a":1e999}', b"9" * 5000, b"\xff"],
)  # fmt: skip
def test_what_is_no_record_is_refused(kind, record):
    with pytest.raises(MalformedRecord):
        kind.decode(record)


def test_a_record_has_a_largest_size(monkeypatch):
    monkeypatch.setattr(records, "MOST_BYTES", len(COMMIT.record) - 1)
    with pytest.raises(MalformedRecord, match="at most"):
        Commit.decode(COMMIT.record)


def changed_offer(**changes: Any) -> bytes:
    return encode({**json.loads(EPOCH.sites[0].encode()), **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"row_bytes": 0},
        {"row_bytes": 9},
        {"n_examples": 2**30 + 1},
        {"n_shareable": 11},
        {"n_examples": -1},
        {"n_examples": True},
        {"n_examples": 10.0},
        {"node_id": 2**64},
        {"site": "../a"},
        {"site": ""},
        {"site": "a\n"},
        {"identity": "AB" * 32},
        {"identity": ""},
        {"key": "ab" * 31},
        {"manifest": ""},
        {"layout": "float32"},
        {"layout": "float32 6\n"},
        {"layout": "float32 6 -> "},
        {"layout": "float32 6 -> float64 "},
        {"layout": "float32 6 -> float64 -> float64"},
        {"layout": "float32 " + "9" * 30},
        {"layout": "float32 1" + "x1" * 80},
        {"layout": None},
        {"columns": "age"},
        {"columns": "ab" * 32},
    ],
    ids=str,
)
def test_an_offer_with_an_impossible_claim_is_refused(changes):
    with pytest.raises(MalformedRecord):
        Offer.decode(changed_offer(**changes))


@pytest.mark.parametrize("labels", ["", " -> float64", " -> int64 14", " -> float32 2x3"])
def test_an_offer_names_labels_that_are_no_class_numbers(labels):
    assert Offer.decode(changed_offer(layout=f"float32 6{labels}")).layout == f"float32 6{labels}"


# Rosters


def test_a_roster_must_be_signed_by_whom_it_names():
    forged = EPOCH.sites[1].signed(WHO[4])
    with pytest.raises(RosterRefused):
        Epoch.decode(replace(EPOCH, offers=(EPOCH.offers[0], forged, EPOCH.offers[2])).encode())
    moved = SignedOffer(EPOCH.offers[1].content, EPOCH.offers[0].signature)
    with pytest.raises(RosterRefused):
        Epoch.decode(replace(EPOCH, offers=(EPOCH.offers[0], moved, EPOCH.offers[2])).encode())


@pytest.mark.parametrize(
    "epoch",
    [
        replace(EPOCH, offers=EPOCH.offers[::-1]),
        replace(EPOCH, offers=(EPOCH.offers[0], *EPOCH.offers)),
        replace(EPOCH, offers=EPOCH.offers[:1], copies=0),
        replace(EPOCH, offers=(), copies=0),
        replace(EPOCH, copies=3),
        replace(EPOCH, federation="banks"),
        replace(
            EPOCH,
            offers=(EPOCH.offers[0], replace(EPOCH.sites[0], site="b").signed(WHO[0])),
        ),
        replace(
            EPOCH, offers=(EPOCH.offers[0], replace(EPOCH.sites[1], key="").signed(WHO[1]))
        ),
    ],
    ids=["order", "twice", "alone", "nobody", "copies", "federation", "one key twice", "no key"],
)  # fmt: skip
def test_a_roster_that_cannot_be_is_refused(epoch):
    with pytest.raises(RosterRefused):
        Epoch.decode(epoch.encode())


def test_a_text_that_is_no_text_is_refused():
    content = {**json.loads(EPOCH.record), "offers": [["\ud800", "ab" * 64]] * 2}
    with pytest.raises(MalformedRecord):
        Epoch.decode(encode(content))


def test_who_is_not_in_the_roster_has_no_place():
    assert [EPOCH.index(who.name) for who in WHO[:3]] == [0, 1, 2]
    with pytest.raises(RosterRefused):
        EPOCH.index(WHO[4].name)


# Commits


@pytest.mark.parametrize(
    "changes",
    [
        {"pairs": ((0, 0),)},
        {"pairs": ((0, 3),)},
        {"pairs": ((1, 2), (0, 1))},
        {"pairs": ((0, 1), (0, 1))},
        {"present": (True, False, True)},
        {"present": (True, True)},
        {"withdrawn": ((6,), (), ())},
        {"withdrawn": ((3, 0), (), ())},
        {"withdrawn": ((3, 3), (), ())},
        {"withdrawn_private": (5, 0, 0)},
        {"withdrawn_private": (0, 0)},
        {"copies": 3},
        {"members": COMMIT.members[::-1]},
        {"members": COMMIT.members[:1]},
        {"members": (replace(COMMIT.members[0], n_shareable=11), *COMMIT.members[1:])},
        {"code": "no-code"},
        {"code": "reliability-split"},
        {"code": "reliability-split", "straggler_prob": (0.5, 1.0, 0.5)},
        {"code": "reliability-split", "straggler_prob": (0.5, 0.5)},
        {"code": "reliability-split", "straggler_prob": (0, 0.5, 0.5)},
        {"code": "owner-corrected", "owner_share": (1e200, 0.5, 0.5)},
        {"straggler_prob": (0.5, 0.5, 0.5)},
        {"number": 0},
        {"serial": -1},
    ],
    ids=str,
)
def test_a_commit_that_cannot_be_is_refused(changes):
    with pytest.raises(Refusal):
        Commit.decode(replace(COMMIT, **changes).encode())


def test_the_examples_of_a_commit_are_those_that_are_left():
    assert COMMIT.n_examples == 30 - 2 - 1 - 4
    assert COMMIT.without(0).n_examples == 20 - 4
    assert COMMIT.without(0).pairs == ((1, 2),)
    assert COMMIT.without(1).pairs == ()
    assert COMMIT.index(WHO[0].name) == 0
    assert COMMIT.without(0).index(WHO[0].name) is None


@pytest.mark.parametrize(
    ("changes", "follows"),
    [
        ({}, True),
        ({"pairs": ((0, 1),)}, False),
        ({"pairs": ((0, 1),), "present": (True, True, False)}, True),
        ({"withdrawn": ((0, 2, 3), (1,), ())}, True),
        ({"withdrawn_private": (2, 0, 4)}, True),
        ({"code": "owner-corrected", "owner_share": (0.1, 0.2, 0.3)}, True),
        ({"pairs": ((0, 1), (1, 2), (2, 0))}, False),
        ({"withdrawn": ((0,), (), ())}, False),
        ({"withdrawn_private": (0, 0, 4)}, False),
        ({"seed": 6}, False),
        ({"copies": 2}, False),
        ({"epoch": "cd" * 32}, False),
        ({"number": 2}, False),
        ({"federation": "banks"}, False),
        ({"members": (replace(COMMIT.members[0], n_shareable=5), *COMMIT.members[1:])}, False),
    ],
    ids=str,
)
def test_a_later_commit_brings_nothing_back(changes, follows):
    assert COMMIT.anew(**changes).may_follow(COMMIT) is follows


def test_a_site_that_left_stays_away():
    left = COMMIT.without(2)
    assert left.may_follow(COMMIT)
    assert not left.anew(present=(True, True, True)).may_follow(left)
    assert not left.may_follow(left)
    assert not COMMIT.may_follow(left)
