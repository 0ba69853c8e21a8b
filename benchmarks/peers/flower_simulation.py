"""One run of one curve on Flower's simulation engine (Ray), a few rounds.

    python benchmarks/peers/flower_simulation.py [--rounds 8] [--json FILE]

Who straggles in a round is not sent a message. Before the first round every client is asked once:
this starts the Ray workers, loads their data and tells which node is which client. It counts as
start-up; every round is timed. Flower gets all cores, one worker on each. Its engine and its grid
look for messages every 0.1 s, which is most of a round.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Iterable

os.environ.update(
    FLWR_TELEMETRY_ENABLED="0",
    FLWR_DISABLE_UPDATE_CHECK="1",
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION="1",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",  # else a warning
)

import one_curve
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

PATIENCE = 120

client_app = ClientApp()


@client_app.train()
def answer(message: Message, context: Context) -> Message:
    """One gradient of the weighted loss over what the client holds."""
    client = int(context.node_config["partition-id"])
    model = one_curve.Softmax()
    model.load_state_dict(message.content["model"].to_torch_state_dict())
    params = dict(model.named_parameters())
    loss = model.loss(*one_curve.holdings()[client])
    gradients = torch.autograd.grad(loss, list(params.values()))
    content = {
        "gradient": ArrayRecord(dict(zip(params, gradients, strict=True))),
        "who": ConfigRecord({"client": client}),
    }
    return Message(RecordDict(content), reply_to=message)


def ask(grid: Grid, model: torch.nn.Module, nodes: Iterable[int]) -> list[Message]:
    content = RecordDict({"model": ArrayRecord(model.state_dict())})
    messages = [Message(content, node, "train") for node in nodes]
    replies = list(grid.send_and_receive(messages, timeout=PATIENCE))
    if len(replies) < len(messages):
        raise TimeoutError(f"{len(replies)} of {len(messages)} answers in {PATIENCE} s")
    for reply in replies:
        if reply.has_error():
            raise RuntimeError(reply.error.reason)
    return replies


def nodes_by_client(grid: Grid, model: torch.nn.Module) -> dict[int, int]:
    while len(nodes := list(grid.get_node_ids())) < one_curve.N:
        time.sleep(0.01)
    return {r.content["who"]["client"]: r.metadata.src_node_id for r in ask(grid, model, nodes)}


def train(grid: Grid, rounds: int) -> tuple[float, list[float], list[float]]:
    """When the first round started, the seconds of each and the accuracy after it."""
    curve, model = one_curve.CURVE, one_curve.Softmax()
    test, answered = one_curve.test_set(), one_curve.answered(rounds)
    optimizer = torch.optim.SGD(model.parameters(), curve.learning_rate)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, curve.decay)
    node = nodes_by_client(grid, model)
    seconds, accuracy = [], []
    begin = time.perf_counter()
    for t in range(rounds):
        start = time.perf_counter()
        replies = ask(grid, model, [node[i] for i in answered[t].nonzero()[0]])
        answers = [reply.content["gradient"].to_torch_state_dict() for reply in replies]
        for name, param in model.named_parameters():
            total = sum((a[name] for a in answers), torch.zeros_like(param))
            param.grad = total / (1 - curve.straggler_prob) / one_curve.M
        optimizer.step()
        schedule.step()
        accuracy.append(model.count_correct(*test) / len(test[1]))
        seconds.append(time.perf_counter() - start)
    return begin, seconds, accuracy


def main() -> None:
    options = one_curve.arguments(__doc__)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    server_app, results = ServerApp(), []

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:  # noqa: ARG001
        results.append(train(grid, options.rounds))

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["FLWR_HOME"] = folder
        start = time.perf_counter()
        run_simulation(
            server_app,
            client_app,
            num_supernodes=one_curve.N,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                "init_args": {
                    "_temp_dir": folder,
                    "log_to_driver": False,
                    "logging_level": "ERROR",
                },
            },
        )
    begin, seconds, accuracy = results[0]
    one_curve.report(
        "Flower simulation",
        ("flwr", "ray", "torch"),
        options,
        startup=begin - start,
        seconds=seconds,
        accuracy=accuracy,
    )


if __name__ == "__main__":
    main()
