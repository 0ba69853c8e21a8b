"""The server: federated averaging."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedcommons.flower import CodedSum, share
from sklearn_app.task import create_model, get_params

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and save the model's parameters."""
    model = create_model(context.run_config["penalty"])
    strategy = CodedSum(share(grid, context))
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_params(model)),
        num_rounds=context.run_config["num-server-rounds"],
    )
    for server_round, metrics in result.evaluate_metrics_clientapp.items():
        print(f"round {server_round}: accuracy {metrics['accuracy']:.4f}")
    np.savez("final_model.npz", *result.arrays.to_numpy_ndarrays())
