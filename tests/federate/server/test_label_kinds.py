"""From the exchange to the trained model with labels that are no class numbers.

With nobody missing, one step on all examples a round is gradient descent on everybody's data: a
plain loop over all of them, without sites, reaches the same model.
"""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict

from fedcommons.errors import FederationError
from fedcommons.federate.site.own_data import SiteData
from tests.federate.server.test_versions import OfVersions
from tests.federate.tiny import N_FEATURES, Tiny, train

pytestmark = pytest.mark.usefixtures("impatient")

ROUNDS, RATE = 6, 0.3


def squared(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The gradient of half the squared error by the scores."""
    return scores - y


def logistic(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The gradient of the log-loss of several yes-or-no labels by the scores."""
    return 1 / (1 + np.exp(-scores)) - y


def linear(gradient):
    """A training function of a linear model with this loss; it goes through `site.batches`."""

    def answer(site, message, context):
        beta = message.content["arrays"]["beta"].numpy()
        for x, y, weight in site.batches(context):
            seen.append((y.dtype, y.shape[1:]))
            residual = gradient(x @ beta, y.reshape(len(y), -1)) * weight[:, None]
            beta = beta - x.T @ residual / len(y)
        return Message(RecordDict({"arrays": ArrayRecord({"beta": Array(beta)})}), reply_to=message)

    seen: list = []
    answer.seen = seen
    return answer


def with_labels(tiny: Tiny, make) -> tuple[np.ndarray, np.ndarray]:
    """Give all sites labels that `make` makes of their inputs; everybody's inputs and labels."""
    for name, data in tiny.data.items():
        x = data.x.block(0, data.n_examples)
        tiny.data[name] = SiteData.from_arrays(x, make(x), data.shareable)
    everything = tiny.data.values()
    return (
        np.concatenate([data.x.block(0, data.n_examples) for data in everything]),
        np.concatenate([data.y for data in everything]),
    )


KINDS = {
    "regression": (lambda x: x[:, 0] - 2 * x[:, 1] + 0.1, squared, np.float64, ()),
    "regression, narrow": (
        lambda x: (x[:, 0] - x[:, 1]).astype(np.float32), squared, np.float32, (),
    ),
    "multi-label": (lambda x: (x[:, :3] > 0).astype(np.uint8), logistic, np.int64, (3,)),
    "time and event": (
        lambda x: np.stack([np.exp(x[:, 0]), x[:, 1] > 0], 1), squared, np.float64, (2,),
    ),
    "an image": (lambda x: x[:, :, None] * x[:, None, :2], squared, np.float64, (4, 2)),
}  # fmt: skip


@pytest.mark.parametrize(("make", "gradient", "dtype", "shape"), KINDS.values(), ids=KINDS)
def test_training_is_gradient_descent_on_everybodys_labels(tiny, make, gradient, dtype, shape):
    x, y = with_labels(tiny, make)
    flat = y.reshape(len(y), -1)
    answer = linear(gradient)
    grid = tiny.grid(train=answer)
    beta = np.zeros((N_FEATURES, flat.shape[1]))
    with tiny.shared(grid) as federation:
        assert len(federation.commit.pairs) >= 8  # so many that labels have travelled
        reached, _ = train(
            federation,
            grid,
            ROUNDS,
            model=ArrayRecord({"beta": Array(beta)}),
            learning_rate=RATE,
            straggler_prob=0.0,
        )
    assert set(answer.seen) == {(np.dtype(dtype), shape)}
    for _ in range(ROUNDS):
        beta = beta - RATE / len(x) * x.T @ gradient(x @ beta, flat)
    np.testing.assert_allclose(reached, beta, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("weights", [True, False])
def test_a_dataloader_hands_out_labels_as_they_are(tiny, weights):
    torch = pytest.importorskip("torch")
    with_labels(tiny, lambda x: (x[:, :3] > 0).astype(np.float32))
    found = set()

    def answer(site, message, context):
        for _x, y, *_ in site.dataloader(context, batch_size=4, weights=weights):
            found.add((y.dtype, tuple(y.shape[1:])))
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    tiny.run(1, grid=tiny.grid(train=answer), model=ArrayRecord({"beta": Array(np.zeros(1))}))
    assert found == {(torch.float32, (3,))}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda y: y.astype(np.float32), "its labels are float32 2, the others' float64 2"),
        (lambda y: y[:, 0], "its labels are float64, the others' float64 2"),
        (lambda y: y[:, [0, 1, 1]], "its labels are float64 3, the others' float64 2"),
        (lambda y: (y > 0)[:, 0], "its labels are class numbers, the others' float64 2"),
        (lambda y: np.round(y).astype(int), "its labels are int64 2, the others' float64 2"),
    ],
    ids=["type", "a number", "three", "classes", "integers"],
)
def test_a_site_with_labels_of_another_form_is_named_and_left_out(tiny, caplog, change, said):
    with_labels(tiny, lambda x: x[:, :2])
    data = tiny.data["b"]
    x = data.x.block(0, data.n_examples)
    tiny.data["b"] = SiteData.from_arrays(x, change(data.y), data.shareable)
    with tiny.shared() as federation:
        assert [m.site for m in federation.commit.members] == ["a", "c", "d"]
    assert f"b is left out of the exchange: {said}" in caplog.text


def test_a_withdrawn_target_is_gone(tiny):
    """Withdrawals go by what an example is, its label included."""
    with_labels(tiny, lambda x: x[:, 0] + 0.5)
    answer = linear(squared)

    def one_round(n: int) -> None:
        tiny.run(n, grid=tiny.grid(train=answer), model=model, straggler_prob=0.0)
        tiny.close()

    model = ArrayRecord({"beta": Array(np.zeros((N_FEATURES, 1)))})
    one_round(1)
    tiny.withdraw("a", 0)
    one_round(2)
    with tiny.store("a") as store:
        assert store.withdrawals.fingerprints()
    for name in "bcd":
        with tiny.store(name) as store:
            record = store.commit_record()[1]
        assert b'"withdrawn":[[0],[],[],[]]' in record


def test_a_server_from_before_labels_had_kinds_is_told_so_by_sites_that_need_them(tiny):
    with_labels(tiny, lambda x: x[:, 0])
    grid = tiny.grid(OfVersions)
    grid.question = 2
    with pytest.raises(FederationError, match=r"two sites are needed.*ServerIsOlder"):
        tiny.share(grid)
