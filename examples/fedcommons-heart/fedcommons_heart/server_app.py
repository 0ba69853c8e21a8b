"""The server: one exchange of what may be shared, then coded training."""

from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedcommons.flower import CodedSum, settings_from, share
from fedcommons_heart import task

N_FEATURES = 13  # of the data that come with fedcommons; your own may have others

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Share once, then train; results and model are in the folder that is printed."""
    settings = settings_from(context.run_config)
    initial_arrays = ArrayRecord({"beta": Array(task.initial(N_FEATURES))})
    strategy = CodedSum(share(grid, context, initial_arrays=initial_arrays), **settings)
    strategy.start(grid, initial_arrays, num_rounds=context.run_config["num-rounds"])
    print(f"results: {strategy.folder}")
