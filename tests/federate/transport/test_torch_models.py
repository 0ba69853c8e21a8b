"""Torch modules of which not all arrays are trained: BatchNorm's statistics, frozen layers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Message, RecordDict
from torch import nn
from torch.nn.functional import cross_entropy

from fedcommons.federate.transport.coded_sum import CodedSum
from tests.federate.tiny import N_CLASSES, N_FEATURES, Tampered, serving

pytestmark = pytest.mark.usefixtures("impatient")


def trained(net, site, context, rate=0.2):
    """Three local steps of the parameters that want a gradient."""
    wanted = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(wanted, lr=rate)
    for x, y, weight in site.batches(context, epochs=3):
        optimizer.zero_grad()
        losses = cross_entropy(
            net(torch.from_numpy(x).float()), torch.from_numpy(y), reduction="none"
        )
        (torch.from_numpy(weight).float() * losses).mean().backward()
        optimizer.step()


def reached(tiny, grid, initial, num_rounds=3):
    """The server's model after some rounds."""
    with tiny.shared(grid) as federation:
        strategy = CodedSum(federation)
        return serving(grid, lambda: strategy.start(grid, initial, num_rounds)).arrays


# BatchNorm


def normalised() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(N_FEATURES, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, N_CLASSES)
    )


STATISTICS = ("1.running_mean", "1.running_var", "1.num_batches_tracked")


@pytest.mark.parametrize("frozen", [False, True])
def test_running_statistics_stay_at_their_site(tiny, frozen):
    given, returned, answers = {}, {}, []

    def train(site, message, context):
        name = context.node_config["site"]
        given.setdefault(name, []).append(message.content["arrays"].to_torch_state_dict())
        net = normalised()
        net.load_state_dict(given[name][-1])
        net[1].train(not frozen)
        trained(net, site, context)
        content = ArrayRecord(net.state_dict())
        returned.setdefault(name, []).append(content.to_torch_state_dict())
        return Message(RecordDict({"arrays": content}), reply_to=message)

    def note(_site, _message, reply):
        answers.append(reply.content.array_records["answer"].to_torch_state_dict())
        return reply

    grid = tiny.grid(Tampered, train=train)
    grid.tamper = note
    start = normalised().state_dict()
    found = reached(tiny, grid, ArrayRecord(start)).to_torch_state_dict()

    assert len(answers) == 4 * 3
    for name in STATISTICS:
        assert all(torch.equal(answer[name], start[name]) for answer in answers)
        assert torch.equal(found[name], start[name])
        for site in "abcd":
            assert torch.equal(given[site][0][name], start[name])
            for t in (1, 2):
                assert torch.equal(given[site][t][name], returned[site][t - 1][name])
            assert torch.equal(returned[site][-1][name], start[name]) == frozen
    for name in ("0.weight", "1.weight", "3.bias"):
        assert not torch.equal(found[name], start[name])
        assert all(torch.equal(given[s][2][name], given["a"][2][name]) for s in "bcd")


# Frozen layers


def documented() -> tuple[Any, Any, Any]:
    """The adapter of docs/federation/app.md, and what it takes to send it."""
    text = (Path(__file__).parents[3] / "docs" / "federation" / "app.md").read_text()
    [block] = [b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "Adapted" in b]
    found: dict[str, Any] = {"nn": nn, "torch": torch, "ArrayRecord": ArrayRecord}
    exec(block, found)  # noqa: S102, our own
    return found["Adapted"], found["adapters"], found["load"]


def test_only_the_arrays_that_are_trained_are_sent(tiny):
    adapted, adapters, load = documented()
    seen = []

    def train(site, message, context):
        net = adapted(N_FEATURES, N_CLASSES)
        load(net, message)
        trained(net, site, context)
        return Message(RecordDict({"arrays": adapters(net)}), reply_to=message)

    def note(_site, message, reply):
        for content in (message.content, reply.content):
            seen.extend(sorted(record) for record in content.array_records.values())
        return reply

    grid = tiny.grid(Tampered, train=train)
    grid.tamper = note
    start = adapters(adapted(N_FEATURES, N_CLASSES))
    found = reached(tiny, grid, start)
    assert len(seen) == 2 * 4 * 3
    assert {tuple(names) for names in seen} == {("down.weight", "up.weight")}
    for name in found:
        assert not np.array_equal(found[name].numpy(), start[name].numpy())
