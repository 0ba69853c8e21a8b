"""The real apps in one process: the paper's task, and messages as they are on the wire."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.supercore.task_identity import TaskIdentity

from fedcommons import datasets, flower
from fedcommons.federate.transport.embedded_grid import EmbeddedGrid, run_embedded, serve
from fedcommons.tasks import softmax
from tests.federate.tiny import serving


def test_the_papers_task_trains_fifty_rounds_with_ten_clients(tmp_path):
    # Single-class, K = 30, c = 0.2, d = 3. Measured: 1.5 s on one core.
    data = datasets.mnist()

    def load(context: Context) -> flower.SiteData:
        digit = int(context.node_config["digit"])
        rows = np.flatnonzero(data.y_train == digit)[:30]
        return flower.SiteData.from_arrays(
            data.x_train[rows], data.y_train[rows], np.arange(30) < 6
        )

    client_app, server_app, final = ClientApp(), ServerApp(), []
    site = flower.attach(client_app, data=load)

    @client_app.train(mods=[flower.coded(site)])
    def train(message: Message, context: Context) -> Message:
        beta = message.content["arrays"]["beta"].numpy()
        x, y, weight = site.examples(context)
        inputs = softmax.with_bias(x.reshape(len(x), -1) / 255)
        found = softmax.weighted_gradient(beta, inputs, y, weight)
        record = ArrayRecord({"beta": Array(found)})
        return Message(RecordDict({"gradient": record}), reply_to=message)

    @server_app.main()
    def main(grid, context):
        federation = flower.share(grid, context, copies=3, seed=1)
        strategy = flower.CodedSum(federation, learning_rate=0.1, decay=0.97)
        start = ArrayRecord({"beta": Array(np.zeros((785, 10)))})
        final.append(strategy.start(grid, start, num_rounds=50).arrays["beta"].numpy())
        federation.close()

    grid = run_embedded(
        server_app,
        client_app,
        [
            {"store": str(tmp_path / str(k)), "site": f"s{k}", "peers": "first-use", "digit": k}
            for k in range(10)
        ],
        {"state-dir": str(tmp_path / "server"), "federation": "paper", "sites": 10},
    )
    site.close()
    scores = softmax.with_bias(data.inputs("test").astype(float)) @ final[0]
    # Everybody answers: gradient descent, .789 at 20 rounds in the paper's setting.
    assert (scores.argmax(axis=1) == data.y_test).mean() > 0.75
    assert grid.handler_seconds > 0
    # 50 models of 785 x 10 float64 to ten sites and back, and the exchange.
    assert grid.n_bytes > 50 * 10 * 2 * 785 * 10 * 8


def echo_grid(handle) -> EmbeddedGrid:
    app = ClientApp()
    app.query("echo")(handle)
    return EmbeddedGrid(app, [{"site": "a"}, {"site": "b"}], {})


def ask(grid: EmbeddedGrid, content: RecordDict, node: int) -> Message | None:
    def main():
        message = Message(content, dst_node_id=node, message_type="query.echo")
        return next(iter(grid.pull_messages(grid.push_messages([message]))), None)

    return serving(grid, main)


def test_contents_are_serialised_both_ways():
    seen = []

    def handle(message: Message, _context: Context) -> Message:
        seen.append(message.content)
        return Message(message.content, reply_to=message)

    sent = RecordDict({"c": ConfigRecord({"n": 1})})
    reply = ask(echo_grid(handle), sent, node=2)
    assert reply.content == sent
    assert seen[0] == sent
    assert seen[0] is not sent
    assert reply.content is not seen[0]
    seen[0]["c"]["n"] = 2
    assert (sent["c"]["n"], reply.content["c"]["n"]) == (1, 1)


def test_a_handler_sees_its_own_node_and_the_identity_is_restored():
    before = (TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id)
    seen = []

    def handle(message: Message, context: Context) -> Message:
        seen.append((TaskIdentity.node_id, context.node_id, message.metadata.dst_node_id))
        return Message(RecordDict(), reply_to=message)

    grid = echo_grid(handle)
    for node in grid.get_node_ids():
        reply = ask(grid, RecordDict(), node)
        assert reply.metadata.src_node_id == node
    assert seen == [(2, 2, 2), (3, 3, 3)]
    assert (TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id) == before


def test_the_identity_is_restored_after_an_error():
    before = (TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id)
    app = ServerApp()

    @app.main()
    def main(_grid, _context):
        raise RuntimeError("no")

    def handle(_message: Message, _context: Context) -> Message:
        raise RuntimeError("secret")

    grid = echo_grid(handle)
    assert ask(grid, RecordDict(), 2).error.code == 2
    with pytest.raises(RuntimeError):
        serve(app, grid, {})
    assert (TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id) == before


def test_a_node_that_does_not_exist_is_unavailable():
    grid = echo_grid(lambda message, context: Message(RecordDict(), reply_to=message))
    assert ask(grid, RecordDict(), 9).error.code == 5


def test_a_reply_is_pulled_once_and_by_its_message_alone():
    grid = echo_grid(lambda message, context: Message(RecordDict(), reply_to=message))

    def main():
        sent = [
            Message(RecordDict(), dst_node_id=node, message_type="query.echo") for node in (2, 3)
        ]
        ids = list(grid.push_messages(sent))
        first = list(grid.pull_messages(ids[:1]))
        return ids, first, list(grid.pull_messages(ids[:1])), list(grid.pull_messages(["none"]))

    ids, first, again, unknown = serving(grid, main)
    assert [reply.metadata.reply_to_message_id for reply in first] == ids[:1]
    assert again == unknown == []
