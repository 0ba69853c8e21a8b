"""Private examples never leave their site, in no byte; shared ones never in clear; no pickle."""

import ast
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

import fedcommons
from fedcommons.errors import FederationError
from fedcommons.federate.server import coordinator
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.transport import messages
from fedcommons.federate.transport.client_app import attach, coded
from fedcommons.federate.transport.coded_sum import CodedSum
from fedcommons.federate.transport.embedded_grid import EmbeddedGrid
from fedcommons.federate.transport.flower_link import FlowerLink
from fedcommons.federate.transport.site_client import SiteClient
from tests.federate.tiny import be_impatient, serving

ROOT = Path(fedcommons.__file__).parent
SITES = "abcd"
WIDTH = 16  # values in a row: 64 bytes as float32
WINDOW = 12  # bytes of a row that must not occur
Train = Callable[[SiteClient, Message, Context], Message]


def secret_data(seed: int, dtype: str) -> SiteData:
    """Ten rows of random values, of which the odd ones are private."""
    rng = np.random.default_rng(seed)
    if dtype == "uint8":
        x = np.frombuffer(rng.bytes(640), np.uint8).reshape(10, 64)
    else:
        x = rng.normal(size=(10, WIDTH)).astype(dtype)
    return SiteData.from_arrays(x, rng.integers(0, 3, size=10), np.arange(10) % 2 == 0)


@dataclass
class Traces:
    """What is searched for: parts of rows, as bytes, as hexadecimal and as printed numbers."""

    rows: list[np.ndarray] = field(default_factory=list)

    def forms(self) -> list[bytes]:
        found = []
        for row in self.rows:
            raw = row.tobytes()
            parts = [raw[i : i + WINDOW] for i in range(0, len(raw) - WINDOW + 1, 4)]
            found += [*parts, *(part.hex().encode() for part in parts)]
            if row.dtype.kind == "f":
                found += [repr(float(value)).encode() for value in row]
                found += [f"{value:.6f}".encode() for value in row]
                doubles = row.astype(np.float64).tobytes()
                found += [doubles[i : i + WINDOW] for i in range(0, len(doubles) - WINDOW, 8)]
            else:
                found += [str(row[i : i + 6].tolist())[1:-1].encode() for i in range(len(row) - 5)]
                found += [" ".join(f"{v:3d}" for v in row[i : i + 6]).encode() for i in range(58)]
        return found

    def in_bytes(self, content: bytes) -> int:
        return sum(form in content for form in self.forms())


class Recording(EmbeddedGrid):
    """Keeps every byte that is carried: to a site, and from one."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.to_sites: list[bytes] = []
        self.from_sites: list[bytes] = []

    def _carried(self, message: Message) -> Message:
        carried = super()._carried(message)
        content = wire_bytes(message)
        (self.from_sites if message.metadata.reply_to_message_id else self.to_sites).append(content)
        return carried


def wire_bytes(message: Message) -> bytes:
    from flwr.common.serde import message_to_proto

    return message_to_proto(message).SerializeToString()


def gradient(site: SiteClient, message: Message, context: Context) -> Message:
    """A linear model's gradient: a sum over examples."""
    x, y, weight = site.examples(context)
    beta = message.content["arrays"]["beta"].numpy()
    found = (x.astype(float) / 256 * (weight * (x @ beta - y))[:, None]).sum(axis=0)
    record = ArrayRecord({"beta": Array(found.astype(beta.dtype))})
    return Message(RecordDict({"gradient": record}), reply_to=message)


class QuotingError(Exception):
    """An error that quotes data wherever it can."""

    def __init__(self, x: np.ndarray) -> None:
        super().__init__(x.tobytes(), x.tolist())
        self.x = x
        self.add_note(str(x.tolist()))

    def __str__(self) -> str:
        return str(self.x.tolist())


def raises(make: Callable[[np.ndarray], Exception]) -> Train:
    def train(site: SiteClient, _message: Message, context: Context) -> Message:
        x, _, _ = site.examples(context)
        try:
            raise make(x)
        except Exception as error:
            raise ValueError(f"cannot train on {x.tolist()}") from error

    return train


def looks_up(site: SiteClient, _message: Message, context: Context) -> Message:
    """An error whose text is the key that was looked up, here the data."""
    x, _, _ = site.examples(context)
    raise KeyError(x.tobytes().hex())


@dataclass
class World:
    """A federation in which everything that leaves a site is kept."""

    folder: Path
    dtype: str
    data: dict[str, SiteData] = field(default_factory=dict)
    clients: list[SiteClient] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.data = {name: secret_data(ord(name), self.dtype) for name in SITES}

    def rows(self, *, shareable: bool) -> Traces:
        return Traces(
            [
                data.x.take(np.array([row]))[0]
                for data in self.data.values()
                for row in np.flatnonzero(data.shareable == shareable).tolist()
            ]
        )

    def run(
        self,
        train: Train,
        load: Callable[[str], SiteData] | None = None,
        num_rounds: int = 2,
        fails: str = "",
    ) -> Recording:
        """What passed between server and sites; `fails` is how a run ends that has to."""
        app = ClientApp()
        find = load or self.data.__getitem__
        site = attach(app, data=lambda context: find(str(context.node_config["site"])))
        self.clients.append(site)
        app.train(mods=[coded(site)])(lambda message, context: train(site, message, context))
        configs = [
            {"store": str(self.folder / name), "site": name, "peers": "first-use"} for name in SITES
        ]
        grid = Recording(app, configs, {})
        with pytest.raises(FederationError, match=fails) if fails else contextlib.nullcontext():
            serving(grid, lambda: self._serve(grid, num_rounds))
        return grid

    def _serve(self, grid: Recording, num_rounds: int) -> None:
        federation = coordinator.share(
            FlowerLink(grid),
            federation="hospitals",
            state_dir=self.folder / "server",
            run_id=grid.run_id,
            copies=2,
            n_sites=len(SITES),
            wait=0,
            seed=3,
        )
        beta = np.zeros(self.data["a"].x.shape[1], np.float32)
        try:
            strategy = CodedSum(federation, learning_rate=1e-3)
            strategy.start(grid, ArrayRecord({"beta": Array(beta)}), num_rounds)
        finally:
            federation.close()

    def server_files(self) -> bytes:
        paths = sorted((self.folder / "server").rglob("*"))
        return b"\n".join(path.read_bytes() for path in paths if path.is_file())

    def close(self) -> None:
        for client in self.clients:
            client.close()


@pytest.fixture(params=["uint8", "float32"])
def world(request, tmp_path, monkeypatch):
    be_impatient(monkeypatch)
    world = World(tmp_path, request.param)
    yield world
    world.close()


@pytest.fixture
def logged(caplog):
    """The text of every log record of any logger, with what a formatter would add of exceptions."""
    flower = logging.getLogger("flwr")
    flower.addHandler(caplog.handler)
    caplog.set_level(logging.DEBUG)
    formatter = logging.Formatter("%(name)s %(message)s %(args)s")
    yield lambda: "\n".join(formatter.format(record) for record in caplog.records).encode()
    flower.removeHandler(caplog.handler)


def test_the_search_finds_what_it_looks_for(world):
    """So that finding nothing below means something."""
    private = world.rows(shareable=False)
    row = private.rows[3]
    for text in (row.tobytes(), row.tobytes().hex().encode(), str(row.tolist()).encode()):
        assert private.in_bytes(b"before" + text + b"after") > 0
    if world.dtype == "uint8":
        assert private.in_bytes(str(row).encode()) > 0


def assert_nothing_leaks(world: World, grid: Recording, logged: bytes) -> None:
    private, shared = world.rows(shareable=False), world.rows(shareable=True)
    for content in (*grid.from_sites, *grid.to_sites, logged, world.server_files()):
        assert private.in_bytes(content) == 0
        assert shared.in_bytes(content) == 0


def test_nothing_leaves_a_site_in_clear(world, logged):
    grid = world.run(gradient)
    assert sum(messages.ENVELOPES.encode() in content for content in grid.from_sites) >= len(SITES)
    assert b"round" in world.server_files()
    assert_nothing_leaks(world, grid, logged())
    # The recipients do have what was shared, and nothing else of another's.
    stores = {name: (world.folder / name / "store.sqlite3").read_bytes() for name in SITES}
    shared, private = world.rows(shareable=True), world.rows(shareable=False)
    assert shared.in_bytes(b"".join(stores.values())) > 0
    assert private.in_bytes(b"".join(stores.values())) == 0


@pytest.mark.parametrize(
    "train",
    [
        raises(QuotingError),
        raises(lambda x: ValueError(x.tolist())),
        raises(lambda x: RuntimeError(x.tobytes())),
        looks_up,
    ],
    ids=["quoting", "list", "bytes", "key"],
)
def test_errors_of_the_training_function_cross_by_their_class(world, logged, train):
    grid = world.run(train, fails="nobody answered")
    assert any(b"ValueError" in c or b"KeyError" in c for c in grid.from_sites)
    assert_nothing_leaks(world, grid, logged())


def test_errors_of_the_loading_function_cross_by_their_class(world, logged):
    def load(name: str) -> SiteData:
        data = world.data[name]
        if name == "b":
            raise QuotingError(data.x.block(0, 10))
        return data

    grid = world.run(gradient, load)
    assert any(b"QuotingError" in content for content in grid.from_sites)
    assert_nothing_leaks(world, grid, logged())


def test_refused_data_are_not_quoted(world, logged):
    """Data that change between two runs: a refusal, and nothing of the data in it."""
    world.run(gradient)
    world.close()
    world.data["c"] = secret_data(999, world.dtype)
    grid = world.run(gradient, num_rounds=4)
    assert any(b"DataChanged" in content for content in grid.from_sites)
    assert_nothing_leaks(world, grid, logged())


def test_a_federation_that_fails_does_not_quote_data(world, logged):
    def load(name: str) -> SiteData:
        raise QuotingError(world.data[name].x.block(0, 10))

    with pytest.raises(FederationError) as error:
        world.run(gradient, load)
    assert world.rows(shareable=False).in_bytes(str(error.value).encode() + logged()) == 0


# No pickle

FORBIDDEN = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
CALLS = {("torch", "load"), ("torch", "save"), ("", "eval"), ("", "exec")}
FILES = [*sorted((ROOT / "federate").rglob("*.py")), ROOT / "flower.py", ROOT / "npz.py"]


def pickles(tree: ast.AST) -> list[str]:
    """What could read or write pickles: modules, NumPy's flag, torch's load and save."""
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                safe = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                if keyword.arg == "allow_pickle" and not safe:
                    found.append("allow_pickle")
            called, _, method = ast.unparse(node.func).rpartition(".")
            if (called, method) in CALLS or (
                method in ("dumps", "loads") and called not in ("json", "tomllib")
            ):
                found.append(ast.unparse(node))
            if method in ("__import__", "import_module"):
                names = [a.value for a in node.args if isinstance(a, ast.Constant)]
        found += [name for name in names if name.split(".")[0] in FORBIDDEN]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_pickled(path):
    assert pickles(ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import dill as json",
        "import marshal",
        "np.load(f, allow_pickle=True)",
        "np.load(f, allow_pickle=flag)",
        "torch.load(f)",
        "__import__('pickle')",
        "p.loads(b'')",
    ],
)
def test_the_search_for_pickle_finds_it(text):
    assert pickles(ast.parse(text))
