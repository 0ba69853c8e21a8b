"""Flower's mods, and a user's own, in every position: they compose, or are refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import (
    LocalDpMod,
    adaptiveclipping_mod,
    arrays_size_mod,
    fixedclipping_mod,
    message_size_mod,
)

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.refusals import ModRefused
from fedcommons.federate.transport import flower_internals
from fedcommons.federate.transport.client_app import attach
from fedcommons.federate.transport.coded_sum import CodedSum
from tests.federate.tiny import initial, outcomes, serving, train, trained_model

pytestmark = pytest.mark.usefixtures("impatient")

NORM = 0.01


def local_dp(clipping_norm=NORM):
    """No noise to speak of: what is clipped can be seen."""
    return LocalDpMod(clipping_norm, sensitivity=1e-12, epsilon=1.0, delta=1e-5)


def run(tiny, config=None, *, function=None, **mods):
    """One round with warm answers of trained models; the parameters, and the round's record."""
    function = function or trained_model(0.1)
    grid = tiny.grid(train=function, **mods)
    with tiny.shared(grid) as federation:
        model, notes = train(
            federation, grid, 1, config=config, straggler_prob=0.0, learning_rate=1.0
        )
    tiny.close()
    return model, notes[0]


def test_clipping_behind_coded_clips_how_far_a_sites_model_goes(tiny):
    """The model goes as far as the mean of steps of this length; without it, further."""
    free, _ = run(tiny)
    for mod, config in (
        (local_dp(), None),
        (fixedclipping_mod, ConfigRecord({"clipping_norm": NORM})),
    ):
        clipped, note = run(type(tiny)(tiny.folder / str(id(mod))), config, mods=[mod])
        assert all(site["answered"] for site in note["sites"])
        assert 0 < np.linalg.norm(clipped) <= NORM * (1 + 1e-6)
        assert np.linalg.norm(free) > 2 * np.linalg.norm(clipped)
        cosine = (free * clipped).sum() / np.linalg.norm(free) / np.linalg.norm(clipped)
        assert cosine > 0.9  # the same direction: it is a mean of clipped steps


@pytest.mark.parametrize("mod", [arrays_size_mod, message_size_mod])
def test_sizes_are_told_behind_coded(tiny, mod):
    free, _ = run(tiny)
    told, note = run(type(tiny)(tiny.folder / "told"), mods=[mod])
    assert all(site["answered"] for site in note["sites"])
    np.testing.assert_array_equal(told, free)


# Flower's, where they cannot work

OUTSIDE = {
    "LocalDpMod": local_dp(),
    "fixedclipping_mod": fixedclipping_mod,
    "arrays_size_mod": arrays_size_mod,
    "message_size_mod": message_size_mod,
    "adaptiveclipping_mod": adaptiveclipping_mod,
    "secaggplus_mod": secaggplus_mod,
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_of_the_whole_app_they_are_refused_when_it_is_loaded(name):
    with pytest.raises(ModRefused, match=name):
        attach(ClientApp(mods=[OUTSIDE[name]]))


@pytest.mark.parametrize("name", OUTSIDE)
def test_before_coded_they_are_refused_before_an_exchange(tiny, caplog, name):
    grid = tiny.grid(outside=[OUTSIDE[name]])
    with pytest.raises(FederationError, match=r"two sites are needed, 0 .*ModRefused"):
        tiny.share(grid)
    assert f"ModRefused: {name} " in caplog.text  # the site's log
    assert "a mod of its app does not go with coded" in caplog.text  # the server's


@pytest.mark.parametrize("name", ["adaptiveclipping_mod", "secaggplus_mod"])
def test_some_are_refused_behind_coded_too(tiny, caplog, name):
    with pytest.raises(FederationError, match="ModRefused"):
        tiny.share(tiny.grid(mods=[OUTSIDE[name]]))
    assert f"ModRefused: {name} does not go with coded" in caplog.text


def test_clipping_without_a_norm_says_where_it_comes_from(tiny, caplog):
    with pytest.raises(FederationError, match="nobody answered"):
        run(tiny, mods=[fixedclipping_mod])
    assert "fixedclipping_mod needs the number clipping_norm in the server's" in caplog.text


@pytest.mark.parametrize("mod", [local_dp(), fixedclipping_mod], ids=["local", "fixed"])
def test_a_gradient_is_not_clipped_as_if_it_were_a_model(tiny, caplog, mod):
    config = ConfigRecord({"clipping_norm": NORM})
    grid = tiny.grid(mods=[mod])  # which answers with the gradient
    with tiny.shared(grid) as federation, pytest.raises(FederationError, match="nobody answered"):
        train(federation, grid, 1, config=config)
    assert "clips how far a model went: return the trained arrays, not a gradient" in caplog.text


def test_noise_and_the_owner_corrected_code_leave_the_shares_equal(tiny, caplog):
    """No gradient of a single example is taken; the sites' answers count as ever."""
    grid = tiny.grid(train=trained_model(0.1), mods=[local_dp()])
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 1, code="owner-corrected")
        assert federation.commit.owner_share == pytest.approx((1 / 3,) * 4)
    assert set(outcomes(notes[0]).values()) == {"answered"}
    assert "LocalDpMod does not go with the owner-corrected code" in caplog.text
    assert "a: ModRefused: a mod of its app does not go with coded" in caplog.text


# A user's own


class Counted:
    """Changes nothing."""

    def __init__(self) -> None:
        self.types: list[str] = []

    def __call__(self, message, context, call_next):
        self.types.append(message.metadata.message_type)
        return call_next(message, context)


@pytest.mark.parametrize("place", ["mods", "outside", "app_mods"])
def test_a_mod_that_only_looks_is_welcome_anywhere(tiny, place):
    free, _ = run(tiny)
    mod = Counted()
    seen, note = run(type(tiny)(tiny.folder / "seen"), **{place: [mod]})
    np.testing.assert_array_equal(seen, free)
    assert all(site["answered"] for site in note["sites"])
    assert mod.types == ["train"] * 4  # and none of the exchange's messages


def halving(message, context, call_next):
    """Makes every array of the reply half as large, whatever it is."""
    reply = call_next(message, context)
    for name, record in list(reply.content.items()):
        if isinstance(record, ArrayRecord):
            halves = {key: Array(array.numpy() / 2) for key, array in record.items()}
            reply.content[name] = ArrayRecord(halves)
    return reply


def shifting(message, context, call_next):
    """Changes the model on its way in."""
    given = message.content["arrays"]
    moved = {key: Array(array.numpy() + 1) for key, array in given.items()}
    message.content["arrays"] = ArrayRecord(moved)
    return call_next(message, context)


def start(federation, grid, notes):
    """A round, of which what is noted is kept whatever becomes of it."""
    strategy = CodedSum(federation)
    serving(grid, lambda: strategy.start(grid, initial(), 1, on_round=notes.append))


@pytest.mark.parametrize("place", ["outside", "app_mods"])
@pytest.mark.parametrize(
    ("mod", "why", "advice"),
    [
        (halving, "not what coded made", "a mod outside coded changed its answer; put it behind"),
        (shifting, "ModelChanged", "is not the one that the server sent: a mod outside coded"),
    ],
    ids=["answer", "model"],
)
def test_a_mod_before_coded_that_changes_numbers_is_noticed_and_named(
    tiny, caplog, place, mod, why, advice
):
    notes = []
    grid = tiny.grid(train=trained_model(0.1), **{place: [mod]})
    with tiny.shared(grid) as federation, pytest.raises(FederationError, match="nobody answered"):
        start(federation, grid, notes)
    assert outcomes(notes[0]) == dict.fromkeys("abcd", why)
    assert f"a: {why}: " in caplog.text
    assert advice in caplog.text


def test_a_mod_behind_coded_works_on_what_the_function_returns(tiny):
    """Half the model: half of how far it went, from zero."""
    free, _ = run(tiny)
    half, _ = run(type(tiny)(tiny.folder / "half"), mods=[halving])
    np.testing.assert_allclose(half, free / 2, rtol=1e-12)


def test_a_mod_behind_coded_sees_what_a_flower_app_sees(tiny):
    seen = []

    def look(message, context, call_next):
        seen.append(set(message.content))
        return call_next(message, context)

    run(tiny, mods=[look])
    assert seen == [{"arrays", "config"}] * 4


def test_an_error_that_a_mod_replies_is_named(tiny, caplog):
    def refusing(message, _context, _call_next):
        from flwr.app import Error, Message

        return Message(Error(6, "row 17 is secret"), reply_to=message)

    with pytest.raises(FederationError, match="nobody answered"):
        run(tiny, mods=[refusing])
    assert "ReplyWithoutContent: the app's function, or a mod around it, replied with error 6" in (
        caplog.text
    )
    assert "secret" not in caplog.text


def test_mods_are_found_in_their_order():
    """What is undocumented in Flower: where this fails, only the digests still notice."""
    first, second, third = Counted(), Counted(), Counted()
    app = ClientApp(mods=[first])
    assert flower_internals.function_mods(app, "train") is None
    app.train(mods=[second, third])(lambda message, _context: message)
    assert flower_internals.function_mods(app, "train") == [first, second, third]
    assert flower_internals.app_mods(app) == [first]
    app.evaluate()(lambda message, _context: message)
    assert flower_internals.function_mods(app, "evaluate") == [first]
    with flower_internals.without_app_mods(app):
        app.query("own")(lambda message, _context: message)
    assert app._mods == [first]
