"""A site: it trains the model on its images, and tests it on others of its own."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcommons.flower import attach, coded, evaluated
from pytorch_app.task import Net, load_data
from pytorch_app.task import test as test_fn
from pytorch_app.task import train as train_fn

app = ClientApp()
# Every fifth image may be shared.
site = attach(app, data=load_data, shareable=lambda _, y: [k % 5 == 0 for k in range(len(y))])


@app.train(mods=[coded(site)])
def train(message: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    batch_size = context.run_config["batch-size"]
    trainloader, _ = load_data(partition_id, num_partitions, batch_size)
    trainloader = site.dataloader(context, trainloader)
    lr = message.content["config"]["lr"]
    loss = train_fn(model, trainloader, context.run_config["local-epochs"], lr)
    metrics = {"train_loss": loss, "num-examples": len(trainloader.dataset)}
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)


@app.evaluate(mods=[evaluated(site)])
def evaluate(message: Message, context: Context) -> Message:
    """Test the model on local data."""
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    batch_size = context.run_config["batch-size"]
    _, testloader = load_data(partition_id, num_partitions, batch_size)
    loss, accuracy = test_fn(model, testloader)
    metrics = {
        "eval_loss": loss,
        "eval_acc": accuracy,
        "num-examples": len(testloader.dataset),
    }
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
