"""A site: it goes on with the fit on its data, and tests it on others of its own."""

import warnings

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from fedcommons.flower import attach, coded, evaluated
from sklearn_app.task import UNIQUE_LABELS, create_model, get_params, load_data, set_params

app = ClientApp()
# Every fifth image may be shared.
site = attach(app, data=load_data, shareable=lambda _, y: [k % 5 == 0 for k in range(len(y))])


@app.train(mods=[coded(site)])
def train(message: Message, context: Context) -> Message:
    """Fit the model to local data, from the parameters that came."""
    model = create_model(context.run_config["penalty"])
    set_params(model, message.content["arrays"].to_numpy_ndarrays())
    X_train, y_train, weight = site.examples(context)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one pass does not converge
        model.fit(X_train, y_train, sample_weight=weight)
    loss = log_loss(y_train, model.predict_proba(X_train), labels=UNIQUE_LABELS)
    metrics = {"train_logloss": loss, "num-examples": len(X_train)}
    content = {"arrays": ArrayRecord(get_params(model)), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)


@app.evaluate(mods=[evaluated(site)])
def evaluate(message: Message, context: Context) -> Message:
    """Test the model on local data."""
    model = create_model(context.run_config["penalty"])
    set_params(model, message.content["arrays"].to_numpy_ndarrays())
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    _, _, X_test, y_test = load_data(partition_id, num_partitions)
    metrics = {
        "test_logloss": log_loss(y_test, model.predict_proba(X_test), labels=UNIQUE_LABELS),
        "accuracy": model.score(X_test, y_test),
        "num-examples": len(X_test),
    }
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
