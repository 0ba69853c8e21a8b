"""Every durable write of every party, killed before and after it (SIGKILL).

A federation shares and trains, an owner withdraws examples, a site withdraws everything. In each
cell somebody dies at one write; then the same is done again with whatever is on the disks. After
every step all holders must agree on who holds what, to the answers that they really give.

Sites die in the process that handles a message, each where it first reaches the point, while the
server goes on: once before the write, which leaves what was there, and when they are asked again
once after it. The server dies as a whole, at each of its writes in turn.
"""

import ast
import os
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Error, Message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage

import fedcommons
from fedcommons import coding
from fedcommons.federate.protocol import chunks, durable
from fedcommons.federate.transport.embedded_grid import EmbeddedGrid
from fedcommons.tasks import softmax
from tests.federate.tiny import (
    BETA,
    P,
    Tiny,
    answers_at,
    die_at,
    in_child,
    mean_estimate,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")

STORE = (
    "created", "joined", "manifest", "key", "epoch", "sent", "received", "commit", "receipts",
    "withdrawn", "withdrew_all", "wiped", "answered", "drawn",
)  # fmt: skip
GIVEN_UP = ("store.given_up", "server.given_up", "server.dropped")
OLDER = "store.older"  # of a store that was restored from a backup
COMMANDS = (  # of operators: one write each
    "store.approved", "store.recovery", "store.rotated", "store.statement", "store.trusted",
    "peers.pinned", "proxy.configuration", "tls.certificate", "tls.key",
    "backup", "store.restored", "kit", "unit",
)  # fmt: skip
UPGRADED = "store.upgraded"  # killed in tests/federate/site/test_store_upgrade.py
OPERATOR = ("withdrawn", "withdrew_all")  # reached by the operator's commands, not by messages
END = ("results", "results", "results", "model", "run")
ROUND = ("history", "checkpoint")
KEPT = {"store.kept", "store.acknowledged"}  # slow answers: killed in test_late.py
CHUNKS = {"store.chunk", "store.chunks"}  # killed in tests/federate/site/test_chunk_memory.py
# Corrections: killed in test_corrected_answers.py
CORRECTED = {"store.model", "store.stand-in"}
ANSWERS = "server.answers"  # remembered ones: killed in tests/federate/server/test_remembered.py
SCALE = "server.scale"  # killed in tests/federate/server/test_standardisation.py
BEST = {"server.best-model", "server.best"}  # nothing is watched here: tested with evaluation
HOSTILE = {"server.quarantine", "store.audited"}  # killed in tests/federate/attacks/test_kills.py
LIFTED = {"server.lift", "server.lifted"}  # killed in tests/federate/server/test_quarantine.py
CHANGED = "store.changes"  # killed in tests/federate/attacks/test_made_up_changes.py
UNTRAINED = "server.untrained"  # the model here has no such arrays; before the first checkpoint
SERVER = [
    # share and two rounds; b's withdrawal, two rounds; d withdrew everything, two rounds
    *("format", "epoch", "receipts", "commit", "questions", *ROUND, *ROUND, *END),
    *("questions", "commit", *ROUND, *ROUND, *END),
    *("commit", "questions", *ROUND, *ROUND, *END),
]
SIDES = ("before", "after")


class Forking(EmbeddedGrid):
    """A message is handled by a process of its own, which dies at the points, one after the other.

    Each site dies once at each, and leaves a mark. The server then sees Flower's error 8. Who died
    at all of them handles messages in this process, which knows nothing of what was before.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.points, self.marks = (), Path()

    def _handle(self, message: Message) -> Message | None:
        site = self.contexts[message.metadata.dst_node_id].node_config["site"]
        left = [point for point in self.points if not self._mark(site, point).exists()]
        if not left:
            return super()._handle(message)
        read, write = os.pipe()

        def handle() -> None:
            durable.reached = self._die_at(left[0], self._mark(site, left[0]))
            reply = EmbeddedGrid._handle(self, message)
            with os.fdopen(write, "wb") as pipe:
                pipe.write(message_to_proto(reply).SerializeToString())

        code = in_child(handle)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            content = pipe.read()
        if code == -signal.SIGKILL:
            return Message(Error(8), reply_to=message)
        assert code == 0
        return message_from_proto(ProtoMessage.FromString(content))

    def _mark(self, site: object, point: str) -> Path:
        return self.marks / f"{site} {point}"

    def _die_at(self, wanted: str, mark: Path):
        def reached(point: str) -> None:
            if point == wanted:
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        return reached


IN_A_ROUND = ("commit", "answered", "wiped")  # after two of which without answers training ends


def deaths(names: Iterable[str]) -> pytest.MarkDecorator:
    """The points of each name: where sites die twice in one life, or one of the two in each."""
    found = []
    for name in names:
        points = [f"store.{name}:{side}" for side in SIDES]
        found += [(point,) for point in points] if name in IN_A_ROUND else [tuple(points)]
    return pytest.mark.parametrize("points", found, ids=" ".join)


def everybody_at(points: tuple[str, ...]) -> set[tuple[str, str]]:
    return {(site, point) for site in "abcd" for point in points}


def operate(tiny: Tiny, name: str) -> None:
    """The commands of the operators: b's and d's."""
    with tiny.store(name) as store:
        if name == "b":
            store.withdrawals.withdraw(np.array([0, 1]))
        else:
            store.withdrawals.withdraw_everything()


def live(tiny: Tiny, make_grid, command=operate) -> Iterator[None]:
    """The federation's life, step by step; each can be done again."""
    for operator in (None, "b", "d"):
        if operator:
            command(tiny, operator)
        grid = make_grid()
        with tiny.shared(grid, wait=60) as federation:
            saved = federation.state.newest_checkpoint()
            train(federation, grid, 2 + (saved.round if saved else 0))
        tiny.close()
        yield


def all_of(life: Iterator[None]) -> None:
    for _step in life:
        pass


# What must hold


def withdrawn(tiny: Tiny) -> dict[str, set[int]]:
    """The rows that are gone, by what the sites' own stores say."""
    gone = {}
    for name in tiny.names:
        with tiny.store(name) as store:
            manifest, fingerprints = store.manifests.newest(), store.withdrawals.fingerprints()
            rows = {i for i, f in enumerate(manifest.fingerprints) if f.tobytes() in fingerprints}
            gone[name] = set(range(len(manifest.live))) if store.withdrawals.everything else rows
    return gone


def check(tiny: Tiny) -> None:
    """All agree on every d_j, nothing with a receipt is lost, the estimate is unbiased."""
    grid, gone = tiny.grid(), withdrawn(tiny)
    with tiny.shared(grid) as federation:
        commit = federation.commit
        answers, answered = answers_at(federation, grid, BETA)  # raises unless coverage is M
        exchange = federation.state.exchange()
    tiny.close()
    assert answered.tolist() == list(commit.present)
    assert commit.present == tuple(len(gone[m.site]) < m.n_examples for m in commit.members)
    assert commit.n_examples == sum(
        tiny.data[name].n_examples - len(rows) for name, rows in gone.items()
    )
    check_receipts(tiny, exchange, commit)
    placement, x, y = tiny.placement(commit, gone)
    gradients = np.array(
        [
            softmax.weighted_gradient(BETA, softmax.with_bias(x[[j]]), y[[j]], np.ones(1)).ravel()
            for j in range(len(y))
        ]
    )
    expected = coding.equal_split(placement) @ gradients  # nothing else was trained on
    np.testing.assert_allclose(answers, expected, rtol=0, atol=1e-10)
    full = tiny.full_gradient(gone, BETA).ravel()
    np.testing.assert_allclose(mean_estimate(answers, P), full, rtol=0, atol=1e-10)


def check_receipts(tiny: Tiny, exchange, commit) -> None:
    """What was acknowledged is there, but for what was withdrawn since; and nothing else is."""
    assert exchange.epoch.digest.hex() == commit.epoch
    place = {member.identity: i for i, member in enumerate(commit.members)}
    receipts = {(place[r.sender], place[r.recipient]): r for r in exchange.receipts}
    assert set(commit.pairs) <= set(receipts)
    for recipient, member in enumerate(commit.members):
        with tiny.store(member.site) as store:
            held = dict(store.received.counts())
            store.check()
        expected = {}
        for sender, to in commit.pairs:
            if to == recipient and commit.present[recipient]:
                numbers = commit.draw.assigned(sender, recipient)
                assert receipts[sender, to].examples == len(numbers)
                stays = ~np.isin(numbers, commit.withdrawn[sender])
                expected[commit.members[sender].identity] = int(stays.sum())
        assert {k: n for k, n in held.items() if n} == {k: n for k, n in expected.items() if n}


# The cells


@dataclass
class Killing:
    """Makes grids whose sites die at these points."""

    tiny: Tiny
    marks: Path

    def __call__(self, *points: str, kind: type[Forking] = Forking) -> Callable[[], Forking]:
        def make_grid() -> Forking:
            grid = self.tiny.grid(kind)
            grid.points, grid.marks = points, self.marks
            return grid

        return make_grid

    def died(self) -> set[tuple[str, str]]:
        """Which site died at which point."""
        return {tuple(mark.name.split(" ")) for mark in self.marks.glob("? *:*")}


@pytest.fixture
def killing(tiny, tmp_path):
    return Killing(tiny, tmp_path)


@pytest.fixture
def tiny():
    # A killed process loses nothing that a file system in memory would not keep, and thousands of
    # fsyncs wait for nobody's disk there.
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        found = Tiny(Path(folder))
        yield found
        found.close()


def recover(tiny: Tiny) -> None:
    """Do everything again, in new processes, and check after every step."""
    for _step in live(tiny, tiny.grid):
        check(tiny)


def names_in_the_source() -> set[str]:
    """The name of every crash point that the code passes."""
    passing = {
        "point", "writing", "write_file", "append_to_file", "remove_file", "save_exchange",
    }  # fmt: skip
    found = set()
    for path in (Path(fedcommons.__file__).parent / "federate").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in passing and isinstance(node.args[-1], ast.Constant):
                found.add(node.args[-1].value)
    return found


def test_the_matrix_has_every_durable_write(tiny, monkeypatch):
    points: list[str] = []
    monkeypatch.setattr(durable, "reached", points.append)
    all_of(live(tiny, tiny.grid))
    check(tiny)
    first = len(points)
    begin_what_will_be_given_up(tiny)
    exchange_again(tiny, tiny.grid)
    assert {point.removesuffix(":before") for point in points[first:]} >= set(GIVEN_UP)
    del points[first:]
    reached = [point for point in points if point.endswith(":before")]
    assert len(points) == 2 * len(reached)
    names = {point.removesuffix(":before") for point in reached}
    elsewhere = {*GIVEN_UP, *BEST, *HOSTILE, *KEPT, *CHUNKS, *CORRECTED, OLDER, *COMMANDS}
    elsewhere |= {*LIFTED, CHANGED, UPGRADED, ANSWERS, SCALE, UNTRAINED}
    assert names | elsewhere == names_in_the_source()
    assert names == {f"store.{name}" for name in STORE} | {f"server.{name}" for name in SERVER}
    server = [p.removeprefix("server.").removesuffix(":before") for p in reached if "server" in p]
    assert server[: len(SERVER)] == SERVER


@deaths(name for name in STORE if name not in OPERATOR)
def test_sites_die_in_a_handler(tiny, killing, points):
    for _step in live(tiny, killing(*points)):
        check(tiny)
    died = killing.died()
    assert died == everybody_at(points) or (died and "wiped" in points[0])  # not all have to
    with tiny.shared() as federation:  # whoever died was asked again: nothing is missing
        exchange, draw = federation.state.exchange(), federation.commit.draw
    pairs = {(s, r) for s in range(4) for r in range(4) if s != r and len(draw.assigned(s, r))}
    assert len({(r.sender, r.recipient) for r in exchange.receipts}) == len(pairs)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", [*OPERATOR, "wiped"])
def test_an_operator_dies_in_a_command(tiny, name, side):
    deaths = []

    def killed(tiny: Tiny, site: str) -> None:
        def command() -> None:
            durable.reached = lambda point: (
                os.kill(os.getpid(), signal.SIGKILL) if point == f"store.{name}:{side}" else None
            )
            operate(tiny, site)

        deaths.append(in_child(command))

    all_of(live(tiny, tiny.grid, killed))
    assert -signal.SIGKILL in deaths
    check(tiny)
    recover(tiny)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    "nth",
    # Writing the results is the same at every step: it is killed in the first.
    [nth for nth, name in enumerate(SERVER) if name not in END or nth < 13],
    ids=lambda nth: f"{nth}-{SERVER[nth]}",
)
def test_the_server_dies(tiny, nth, side):
    def main() -> None:
        passed = []

        def reached(point: str) -> None:
            if point.startswith("server.") and point.endswith(side):
                passed.append(point)
                if len(passed) == nth + 1:
                    os.kill(os.getpid(), signal.SIGKILL)

        durable.reached = reached
        all_of(live(tiny, tiny.grid))

    assert in_child(main) == -signal.SIGKILL
    recover(tiny)


# A second exchange, and chunks beyond the first


class LaterDeaths(Forking):
    """Sites die where they reach the point for the second time."""

    def _die_at(self, wanted: str, mark: Path):
        die = Forking._die_at(self, wanted, mark)
        passed = mark.with_name(f"passed {mark.name}")

        def reached(point: str) -> None:
            if point == wanted and not passed.exists():
                passed.touch()
            else:
                die(point)

        return reached


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["sent", "received"])
def test_sites_die_at_a_later_chunk(tiny, killing, monkeypatch, name, side):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1)  # an example in each
    point = f"store.{name}:{side}"
    grid = killing(point, kind=LaterDeaths)()
    with tiny.shared(grid, wait=60) as federation:
        train(federation, grid, 1)
        receipts = federation.state.exchange().receipts
        n_chunks = {
            chunks.n_chunks(s, tiny.copies) for s in federation.state.exchange().epoch.sites
        }
    tiny.close()
    assert min(n_chunks) >= 2
    assert killing.died() == {(site, point) for site in "abcd"}
    assert sum(r.examples for r in receipts) == tiny.copies * sum(
        int(data.shareable.sum()) for data in tiny.data.values()
    )
    check(tiny)


def exchange_again(tiny: Tiny, make_grid, **sharing) -> None:
    grid = make_grid()
    with tiny.shared(grid, wait=60, **sharing) as federation:
        train(federation, grid, 2)
    tiny.close()


AGAIN = ("key", "drawn", "epoch", "sent", "received", "commit", "receipts", "wiped")


@deaths(AGAIN)
def test_sites_die_in_a_second_exchange(tiny, killing, points):
    exchange_again(tiny, tiny.grid)
    exchange_again(tiny, killing(*points), reshare=True)
    assert killing.died() == everybody_at(points)
    check(tiny)
    with tiny.shared() as federation:
        assert federation.commit.number == 2


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["epoch", "receipts", "commit"])
def test_the_server_dies_in_a_second_exchange(tiny, name, side):
    exchange_again(tiny, tiny.grid)

    def main() -> None:
        durable.reached = lambda point: (
            os.kill(os.getpid(), signal.SIGKILL) if point == f"server.{name}:{side}" else None
        )
        exchange_again(tiny, tiny.grid, reshare=True)

    assert in_child(main) == -signal.SIGKILL
    exchange_again(tiny, tiny.grid)  # goes on with what was begun
    check(tiny)
    with tiny.shared() as federation:
        assert federation.commit.number == (1 if (name, side) == ("epoch", "before") else 2)


# An exchange that is given up


def begin_what_will_be_given_up(tiny: Tiny) -> None:
    """The server dies before it commits an exchange with other copies."""

    def main() -> None:
        durable.reached = lambda point: (
            os.kill(os.getpid(), signal.SIGKILL) if point == "server.commit:before" else None
        )
        with tiny.shared(wait=60, reshare=True, copies=1):
            pass

    assert in_child(main) == -signal.SIGKILL


def check_given_up(tiny: Tiny) -> None:
    """Nothing is left of it, and the exchange before it is as it was."""
    with tiny.shared() as federation:
        commit = federation.commit
        assert federation.state.given_up == 2
    assert commit.number == 1
    for recipient, member in enumerate(commit.members):
        with tiny.store(member.site) as store:
            assert {epoch.hex() for epoch, *_ in store.received.rows()} <= {commit.epoch}
            held = sum(n for _, n in store.received.counts())
            store.check()
        given = [commit.draw.assigned(s, r) for s, r in commit.pairs if r == recipient]
        assert held == sum(map(len, given))


@deaths(["given_up", "wiped"])
def test_sites_die_as_they_delete_what_is_given_up(tiny, killing, points):
    exchange_again(tiny, tiny.grid)
    begin_what_will_be_given_up(tiny)
    with tiny.shared(grid := killing(*points)(), wait=60) as federation:
        train(federation, grid, 5)
    tiny.close()
    assert killing.died() == everybody_at(points)
    check_given_up(tiny)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["given_up", "dropped"])
def test_the_server_dies_as_it_gives_up(tiny, name, side):
    exchange_again(tiny, tiny.grid)
    begin_what_will_be_given_up(tiny)

    def main() -> None:
        durable.reached = lambda point: (
            os.kill(os.getpid(), signal.SIGKILL) if point == f"server.{name}:{side}" else None
        )
        with tiny.shared(wait=60):
            pass

    assert in_child(main) == -signal.SIGKILL
    grid = tiny.grid()
    with tiny.shared(grid, wait=60) as federation:
        train(federation, grid, 5)
    tiny.close()
    check_given_up(tiny)


@pytest.mark.parametrize("side", SIDES)
def test_a_store_dies_as_it_notes_that_it_is_older(tiny, side):
    """What it forgot does not come back, whenever it died."""
    tiny.forget("b", 0)

    def main() -> None:
        durable.reached = die_at(f"{OLDER}:{side}")
        with tiny.shared(reshare=True):
            pass

    assert in_child(main) == -signal.SIGKILL
    for _ in range(2):
        with tiny.shared(reshare=True) as federation:
            assert [member.site for member in federation.commit.members] == ["a", "c", "d"]
        tiny.close()
