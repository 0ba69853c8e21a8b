"""A site: it trains the model on its records, and tests it on others of its own."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcommons.flower import attach, coded, evaluated
from tabular_app.task import Classifier, evaluator, load_data, trainer

app = ClientApp()
# Every fifth record may be shared.
site = attach(app, data=load_data, shareable=lambda _, y: [k % 5 == 0 for k in range(len(y))])


@app.train(mods=[coded(site)])
def train(message: Message, context: Context) -> Message:
    """Train the model on local data."""
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    train_loader, _ = load_data(partition_id, num_partitions)
    train_loader = site.dataloader(context, train_loader)
    net = Classifier()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    trainer(net, train_loader)
    metrics = {"num-examples": len(train_loader.dataset)}
    content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)


@app.evaluate(mods=[evaluated(site)])
def evaluate(message: Message, context: Context) -> Message:
    """Test the model on local data."""
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    _, test_loader = load_data(partition_id, num_partitions)
    net = Classifier()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss, accuracy = evaluator(net, test_loader)
    metrics = {"loss": loss, "accuracy": accuracy, "num-examples": len(test_loader.dataset)}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
