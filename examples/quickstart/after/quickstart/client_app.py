"""The client: local training, the model goes back."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcommons.flower import attach, coded
from quickstart import task

app = ClientApp()
site = attach(app, data=task.load_site)


@app.train(mods=[coded(site)])
def train(message: Message, context: Context) -> Message:
    net = task.Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    batches = site.batches(context)
    loss = task.train(net, batches, lr=message.content["config"]["lr"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": 1})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)
