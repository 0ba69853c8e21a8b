"""Flower's own rounds: FedAvg's messages, `send_and_receive`, FedAvg's average; one at a turn."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from plain.turns import Turns

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    turns = Turns(str(config["turns"]), "plain", "coded")
    n_sites = int(config["sites"])
    strategy = FedAvg(fraction_train=1.0, min_train_nodes=n_sites, min_available_nodes=n_sites)
    arrays = ArrayRecord({"beta": Array(np.zeros((785, 10), np.float32))})
    for t in range(1, int(config["num-rounds"]) + 1):
        turns.wait()
        messages = strategy.configure_train(t, arrays, ConfigRecord(), grid)
        replies = list(grid.send_and_receive(messages, timeout=120))
        averaged, _ = strategy.aggregate_train(t, replies)
        arrays = averaged or arrays
        turns.over(sum(not reply.has_error() for reply in replies))
