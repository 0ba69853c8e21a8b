"""The server: federated averaging."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedcommons.flower import CodedSum, share
from tabular_app.task import Classifier

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and save the model."""
    strategy = CodedSum(share(grid, context))
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Classifier().state_dict()),
        num_rounds=context.run_config["num-server-rounds"],
    )
    for server_round, metrics in result.evaluate_metrics_clientapp.items():
        print(f"round {server_round}: accuracy {metrics['accuracy']:.4f}")
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
