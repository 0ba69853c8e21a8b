"""Our server: the exchange, then coded rounds, one at a turn."""

from typing import Any

from coded import task
from coded.turns import Turns
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcommons.flower import CodedSum, settings_from, share

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    turns = Turns(str(config["turns"]), "coded", "plain")
    federation = share(grid, context, copies=int(config["copies"]))
    n_rounds = int(config["num-rounds"])

    def on_round(note: dict[str, Any]) -> None:
        turns.over(sum(site["answered"] for site in note["sites"]))
        if note["round"] < n_rounds:
            turns.wait()

    turns.wait()
    CodedSum(federation, **settings_from(config)).start(
        grid, task.initial_arrays(), num_rounds=n_rounds, on_round=on_round
    )
