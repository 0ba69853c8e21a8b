"""The server: federated averaging."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quickstart import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    strategy = FedAvg(fraction_evaluate=0.0)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(task.Net().state_dict()),
        num_rounds=int(context.run_config["num-server-rounds"]),
        train_config=ConfigRecord({"lr": float(context.run_config["lr"])}),
        evaluate_fn=evaluate,
    )
    for server_round, metrics in result.evaluate_metrics_serverapp.items():
        print(f"round {server_round}: accuracy {metrics['accuracy']:.4f}")


def evaluate(_server_round: int, arrays: ArrayRecord) -> MetricRecord:
    net = task.Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": task.test(net)})
