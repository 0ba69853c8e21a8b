"""A hospital: it takes part in the exchange, trains on what it holds, and measures the model."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcommons.flower import attach, coded, evaluated
from fedcommons_heart import task
from fedcommons_heart.data import load_held_out, load_site

app = ClientApp()
site = attach(app, data=load_site, n_classes=2)


@app.train(mods=[coded(site)])
def train(message: Message, context: Context) -> Message:
    """Steps on what this hospital holds: its own records, and those that others shared with it."""
    beta = message.content["arrays"]["beta"].numpy()
    for x, y, weight in site.batches(context):
        beta = task.step(beta, x, y, weight)
    content = {"arrays": ArrayRecord({"beta": Array(beta)})}
    return Message(RecordDict(content), reply_to=message)


@app.evaluate(mods=[evaluated(site)])
def evaluate(message: Message, context: Context) -> Message:
    """How many of the patients that it held out it tells right."""
    x, y = load_held_out(context)
    if scale := site.scale(context):
        x = scale.apply(x)
    beta = message.content["arrays"]["beta"].numpy()
    right = (task.probability_of_illness(beta, x) > 0.5) == np.asarray(y)
    metrics = MetricRecord({"accuracy": float(right.mean()), "num-examples": len(y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
