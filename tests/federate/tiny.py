"""A federation of a few sites with a handful of examples each, over the embedded grid."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from fedcommons import estimators
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.model_schema import ModelSchema
from fedcommons.federate.server import asking, coordinator, delivery, meeting
from fedcommons.federate.server.answer_files import AnswerFiles, Row
from fedcommons.federate.server.answers import AnswerCollector
from fedcommons.federate.server.checkpoints import read_checkpoint
from fedcommons.federate.server.deadlines import Deadline
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.training_folder import TrainingFolder
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.store import Store
from fedcommons.federate.transport.client_app import attach, coded, evaluated
from fedcommons.federate.transport.coded_sum import CodedSum
from fedcommons.federate.transport.embedded_grid import EmbeddedGrid, serve
from fedcommons.federate.transport.flower_link import FlowerLink
from fedcommons.federate.transport.site_client import SiteClient
from fedcommons.methods import Method
from fedcommons.placement import Placement
from fedcommons.stragglers import Trace
from fedcommons.tasks import softmax

N_FEATURES, N_CLASSES = 4, 3
NAME = "hospitals"
P = np.array([0.1, 0.5, 0.8, 0.3])
BETA = np.random.default_rng(3).normal(
    size=(N_FEATURES + 1, N_CLASSES)
)  # where gradients are taken

Train = Callable[[SiteClient, Message, Context], Message]


def gradient(site: SiteClient, message: Message, context: Context) -> Message:
    """A training function that answers with the weighted sum of gradients."""
    beta = message.content["arrays"]["beta"].numpy()
    x, y, weight = site.examples(context)
    found = softmax.weighted_gradient(beta.astype(float), softmax.with_bias(x), y, weight)
    record = ArrayRecord({"beta": Array(found.astype(beta.dtype))})
    return Message(RecordDict({"gradient": record}), reply_to=message)


def trained_model(rate: float) -> Train:
    """A training function in Flower's usual form: local steps on the mean loss, then the model."""

    def train(site: SiteClient, message: Message, context: Context) -> Message:
        beta = message.content["arrays"]["beta"].numpy()
        for x, y, weight in site.batches(context):
            step = softmax.weighted_gradient(beta, softmax.with_bias(x), y, weight) / len(y)
            beta = (beta - rate * step).astype(beta.dtype)
        return Message(RecordDict({"arrays": ArrayRecord({"beta": Array(beta)})}), reply_to=message)

    return train


def be_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same waiting, a hundred times shorter."""
    monkeypatch.setattr(asking, "POLL_SECONDS", 0.003)
    monkeypatch.setattr(delivery, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(meeting, "LINGER_SECONDS", 0.05)
    monkeypatch.setattr(meeting, "MEET_AGAIN_SECONDS", 0.01)


def initial(dtype: str = "float64") -> ArrayRecord:
    return ArrayRecord({"beta": Array(np.zeros((N_FEATURES + 1, N_CLASSES), dtype))})


@dataclass
class Tiny:
    """Sites named a, b, ...: site k has `sizes[k]` examples of which every other is shareable.

    Each call of `grid` stands for a restart of everything: no process remembers another.
    """

    folder: Path
    sizes: tuple[int, ...] = (4, 6, 5, 7)
    copies: int = 2
    data: dict[str, SiteData] = field(default_factory=dict)
    clients: list[SiteClient] = field(default_factory=list)

    def __post_init__(self) -> None:
        for k, n in enumerate(self.sizes):
            rng = np.random.default_rng(k)
            x, y = rng.normal(size=(n, N_FEATURES)), rng.integers(0, N_CLASSES, n)
            self.data["abcdefghij"[k]] = SiteData.from_arrays(x, y, np.arange(n) % 2 == 0)

    @property
    def names(self) -> list[str]:
        return list(self.data)

    @property
    def state_dir(self) -> Path:
        return self.folder / "server"

    def app(
        self,
        train: Train = gradient,
        *,
        evaluate: Train | None = None,
        mods: Sequence[Any] = (),
        outside: Sequence[Any] = (),
        app_mods: Sequence[Any] = (),
    ) -> ClientApp:
        """The app of all sites; `mods` are behind `coded`, those `outside` before it."""
        app = ClientApp(mods=list(app_mods))
        site = attach(app, data=lambda context: self.data[str(context.node_config["site"])])
        self.clients.append(site)
        around = [*outside, coded(site), *mods]
        app.train(mods=around)(lambda message, context: train(site, message, context))
        if evaluate is not None:
            measure = lambda message, context: evaluate(site, message, context)  # noqa: E731
            app.evaluate(mods=[evaluated(site)])(measure)
        return app

    def grid(
        self,
        kind: type[EmbeddedGrid] = EmbeddedGrid,
        *,
        without: str = "",
        train: Train = gradient,
        **of_app: Any,
    ) -> Any:
        """A grid with a node for every site but those `without`."""
        configs = [
            {"store": str(self.folder / name), "site": name, "peers": "first-use"}
            for name in self.names
            if name not in without
        ]
        return kind(self.app(train, **of_app), configs, {})

    def share(self, grid: EmbeddedGrid, **options: Any) -> ServerFederation:
        defaults = {
            "copies": self.copies,
            "seed": 5,
            "n_sites": max(2, len(grid.contexts)),
            "wait": 0,
        }
        return serving(
            grid,
            lambda: coordinator.share(
                FlowerLink(grid),
                federation=NAME,
                state_dir=self.state_dir,
                run_id=grid.run_id,
                **{**defaults, **options},
            ),
        )

    @contextlib.contextmanager
    def shared(
        self, grid: EmbeddedGrid | None = None, **options: Any
    ) -> Iterator[ServerFederation]:
        federation = self.share(self.grid() if grid is None else grid, **options)
        try:
            yield federation
        finally:
            federation.close()

    def run(
        self,
        num_rounds: int,
        *,
        grid: EmbeddedGrid | None = None,
        sharing: dict[str, Any] | None = None,
        **settings: Any,
    ) -> np.ndarray:
        """Share and train; the final parameters."""
        grid = self.grid() if grid is None else grid
        with self.shared(grid, **(sharing or {})) as federation:
            return train(federation, grid, num_rounds, **settings)[0]

    @contextlib.contextmanager
    def store(self, name: str) -> Iterator[Store]:
        store = Store(self.folder / name)
        try:
            yield store
        finally:
            store.close()

    def withdraw(self, name: str, *rows: int) -> None:
        with self.store(name) as store:
            store.withdrawals.withdraw(np.array(rows))

    def forget(self, name: str, *rows: int) -> None:
        """A round, a withdrawal, another round; then the site's store is one from before that."""
        self.run(1)
        self.close()
        backup = self.folder / f"{name}-backup"
        shutil.copytree(self.folder / name, backup)
        self.withdraw(name, *rows)
        self.run(2)
        self.close()
        shutil.rmtree(self.folder / name)
        backup.rename(self.folder / name)

    def events(self, name: str, event: str) -> list[Any]:
        """The entries of a site's ledger of one kind."""
        with self.store(name) as store:
            return [entry for entry in store.ledger.entries() if entry.event == event]

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def placement(
        self, commit: Commit, gone: dict[str, set[int]] | None = None
    ) -> tuple[Placement, np.ndarray, np.ndarray]:
        """Who holds what by the draw and the commit, one example after another; inputs, labels."""
        owner, example, recipient, x, y = [], [], [], [], []
        for place, member in enumerate(commit.members):
            data = self.data[member.site]
            numbers = np.cumsum(data.shareable) - 1
            for row in range(data.n_examples):
                if not commit.present[place] or row in (gone or {}).get(member.site, set()):
                    continue
                if data.shareable[row]:
                    drawn = commit.draw.recipients(place, numbers[row], numbers[row] + 1)[0]
                    holders = [r for r in drawn.tolist() if (place, r) in commit.pairs]
                    example += [len(owner)] * len(holders)
                    recipient += holders
                owner.append(place)
                x.append(data.x.take(np.array([row]))[0])
                y.append(data.y[row])
        placement = Placement.from_copies(
            np.array(owner), np.array(example), np.array(recipient), n_clients=len(commit.members)
        )
        return placement, np.array(x), np.array(y)

    def full_gradient(self, gone: dict[str, set[int]], beta: np.ndarray) -> np.ndarray:
        """The sum over all examples, but for the rows that are gone."""
        total = np.zeros_like(beta)
        for name, data in self.data.items():
            stays = [row for row in range(data.n_examples) if row not in gone.get(name, set())]
            rows = np.array(stays, dtype=np.int64)
            x = softmax.with_bias(data.x.take(rows))
            total += softmax.weighted_gradient(beta, x, data.y[rows], np.ones(len(rows)))
        return total


class Tampered(EmbeddedGrid):
    """Every reply to a training message passes `tamper(site, message, reply)`; None never comes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tamper: Callable[[str, Message, Message], Message | None] = lambda s, m, reply: reply

    def _handle(self, message: Message) -> Message | None:
        reply = super()._handle(message)
        if message.metadata.message_type != "train" or reply is None:
            return reply
        site = self.contexts[message.metadata.dst_node_id].node_config["site"]
        return self.tamper(str(site), message, reply)


class Counting(EmbeddedGrid):
    """Notes (site, message type) of everything that is sent."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sent: list[tuple[str, str]] = []

    def _handle(self, message: Message) -> Message | None:
        site = str(self.contexts[message.metadata.dst_node_id].node_config["site"])
        self.sent.append((site, message.metadata.message_type))
        return super()._handle(message)


def in_child(main: Callable[[], object]) -> int:
    """Run in a forked child; its exit code, or the signal that killed it, negative."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with BLAS threads about
        child = os.fork()
    if child == 0:
        code = 1
        try:
            main()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at(point: str, times: int = 1) -> Callable[[str], None]:
    """A hook for `durable.reached` that kills this process where the point is reached."""
    left = [times]

    def reached(name: str) -> None:
        if name == point:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached


def serving(grid: EmbeddedGrid, main: Callable[[], Any]) -> Any:
    """What `main` returns when it runs as a server app."""
    app, found = ServerApp(), []
    app.main()(lambda _grid, _context: found.append(main()))
    serve(app, grid, {})
    return found[0]


def train(
    federation: ServerFederation,
    grid: EmbeddedGrid,
    num_rounds: int,
    *,
    model: ArrayRecord | None = None,
    config: ConfigRecord | None = None,
    evaluate_fn: Any = None,
    strategy_class: type[CodedSum] = CodedSum,
    **settings: Any,
) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """The final parameters, and the record of every round of this run."""
    notes: list[dict[str, Any]] = []
    strategy = strategy_class(
        federation, **{"learning_rate": 0.5, "estimator": "coded_sum", **settings}
    )
    result = serving(
        grid,
        lambda: strategy.start(
            grid,
            model or initial(),
            num_rounds,
            train_config=config,
            evaluate_fn=evaluate_fn,
            on_round=notes.append,
        ),
    )
    return result.arrays["beta"].numpy(), notes


def outcomes(note: dict[str, Any]) -> dict[str, str]:
    return {site["site"]: site["outcome"] for site in note["sites"]}


def answers_at(
    federation: ServerFederation, grid: EmbeddedGrid, beta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The answers that the sites really give at these parameters: (N, P), and who answered."""
    model = {"beta": beta}
    with tempfile.TemporaryDirectory() as path:
        folder, link = TrainingFolder(Path(path), ModelSchema.of(model)), FlowerLink(grid)
        collector = AnswerCollector(federation, link, folder, Method(), Deadline(10.0), {})
        active = np.array(federation.commit.active)
        found = serving(grid, lambda: collector.answers(collector.ask(model, 1, active)))
        return rows_of(folder.answers, found.rows), found.answered


def rows_of(files: AnswerFiles, rows: Sequence[Row | None]) -> np.ndarray:
    """These answers, (N, P); 0 where there is none."""
    found = np.zeros((len(rows), files.n_params))
    for i, row in enumerate(rows):
        if row is not None:
            found[i] = files.read(row, 0, files.n_params)
    return found


def remembered(federation: ServerFederation) -> np.ndarray:
    """What the newest training remembers of each site, (N, P), by its checkpoint."""
    saved = federation.state.newest_checkpoint()
    (folder,) = {
        path.parent
        for path in federation.state.folder.glob("training-*/checkpoint.npz")
        if read_checkpoint(path).memory == saved.memory
    }
    files = AnswerFiles(folder / "answers", len(saved.model), saved.model.dtype)
    members = federation.commit.members
    return rows_of(files, [saved.memory.get(member.identity) for member in members])


def mean_estimate(answers: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The expectation of the paper's estimate over all 2^N straggler patterns."""
    total = np.zeros(answers.shape[1])
    for pattern in itertools.product([False, True], repeat=len(answers)):
        answered = np.array(pattern)
        found, _ = estimators.estimate(estimators.coded_sum, None, answers, answered, p)
        total += np.prod(np.where(answered, 1 - p, p)) * found
    return total


def trace(*rounds: str) -> Trace:
    """Who answers in each round: trace("abd", "c")."""
    return Trace(np.array([[name in answering for name in "abcd"] for answering in rounds]))


class ByTick(EmbeddedGrid):
    """Replies come by tick: what site s was asked in tick t can be pulled from tick `due(s, t)` on.

    `away` are the sites that are not connected now. A tick is a round of `train_by_tick`.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tick, self.away = 1, ""
        self.due: Callable[[str, int], int] = lambda _site, tick: tick
        self.asked: list[tuple[int, str, str]] = []  # tick, site, task
        self._due: dict[str, int] = {}

    def _site(self, node: int) -> str:
        return str(self.contexts[node].node_config["site"])

    def get_node_ids(self) -> list[int]:
        return [node for node in self.contexts if self._site(node) not in self.away]

    def push_messages(self, messages: Any) -> Any:
        sent = list(messages)
        ids = list(super().push_messages(sent))
        for message_id, message in zip(ids, sent, strict=True):
            if message.metadata.message_type == "train":
                site = self._site(message.metadata.dst_node_id)
                task = str(message.content["fedcommons"].get("task", ""))
                self.asked.append((self.tick, site, task))
                if task == "answer":
                    self._due[message_id] = self.due(site, self.tick)
        return ids

    def pull_messages(self, message_ids: Any) -> Any:
        ids = list(message_ids)
        node_of = {m.metadata.message_id: m.metadata.dst_node_id for m in self._pushed}
        for one in ids:  # Flower takes an absent node's message back
            if one in node_of and self._site(node_of[one]) in self.away:
                raise AssertionError(f"{self._site(node_of[one])} is not connected, and looked at")
        return super().pull_messages([one for one in ids if self._due.get(one, 0) <= self.tick])


def train_by_tick(
    federation: ServerFederation,
    grid: ByTick,
    num_rounds: int,
    *,
    before: Callable[[int], object] = lambda _tick: None,
    **settings: Any,
) -> tuple[list[np.ndarray], list[dict[str, Any]]]:
    """The parameters before round 1 and after every round, and the rounds' records.

    A round waits for nobody; `before` is called with the number of the round that comes next.
    """
    models: list[np.ndarray] = []
    notes: list[dict[str, Any]] = []

    def evaluate(_round: int, arrays: ArrayRecord) -> None:
        models.append(arrays["beta"].numpy().copy())

    def on_round(note: dict[str, Any]) -> None:
        notes.append(note)
        grid.tick = note["round"] + 1
        before(grid.tick)

    strategy = CodedSum(
        federation, **{"learning_rate": 0.5, "estimator": "memory", "deadline": 1e-6, **settings}
    )
    before(grid.tick)
    serving(
        grid,
        lambda: strategy.start(
            grid, initial(), num_rounds, evaluate_fn=evaluate, on_round=on_round
        ),
    )
    return models, notes
