"""The words beside a figure: what it shows, how its lines are called, and what each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

from fedcommons.metrics import Metric
from fedcommons.simulate import settings
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Figure

CAPTIONS = {
    "curves": "$metric after each round, and the second moment |ĝ|² of the gradient estimate "
    "with which the server takes the round’s step: the smaller, the steadier the steps.",
    "scalar-products": "Scalar products of the examples’ gradients at each round’s model, "
    "summed over pairs of the same class (Type I) and of different classes (Type II). Together "
    "they are |g|², the squared norm of the full gradient.",
    "heterogeneity": "How far the clients’ label counts are from even, averaged over the labels: "
    "before sharing, after it, and as the theory expects it after sharing.",
    "second-moment": "The second moment |ĝ|² of the estimate beside its exact mean over the "
    "stragglers; and by how much sharing lowers that mean at each round’s model, beside the exact "
    "expectation over the sharing and the lower bounds of Theorem 2 and of the Remark that follows "
    "it.",
    "grid": "$metric for each shareable proportion c and number of copies d. Sharing costs "
    "dc copies per training example, once, before training.",
}
CLOCKED = (
    "$metric by the clock, and the second moment |ĝ|² of the estimate with which the server takes "
    "the step that is under way. Every line has ticks of its own; at each time a run counts with "
    "the last model that was looked at."
)
OF_METRICS = ("curves", "grid")  # kinds that draw one
PLACES = {  # fields that a kind has places or a switch for, or does not depend on; others: p
    "scalar-products": set[str](),
    "grid": {"proportion", "copies", "straggler_prob"},
    "heterogeneity": {
        name
        for name, _ in settings.ranked(Curve)
        if name not in ("partition", "algorithm", "scheme")
    },
}


def caption(kind: str, metrics: Sequence[Metric], *, clocked: bool = False) -> str:
    """What a figure of this kind shows; under a clock by seconds."""
    first, *others = (metric.words for metric in metrics)
    words = first[0].upper() + first[1:]
    if others:
        words = " or ".join([", ".join([words, *others[:-1]]), others[-1]])
    template = CLOCKED if clocked and kind == "curves" else CAPTIONS[kind]
    return Template(template).substitute(metric=words)


def labels(figure: Figure) -> list[str]:
    """The lines' labels; where several lines share one, what tells them apart is added."""
    left_out = PLACES.get(figure.kind, {"straggler_prob"})
    shown = [
        setting.tells
        for name, setting in settings.ranked(Curve)
        if setting.tells is not None and name not in left_out
    ]
    alike: dict[str, list[Curve]] = {}
    for line in figure.lines:
        alike.setdefault(line.label, []).append(line.curve)
    telling = {
        label: [show for show in shown if len({*map(show, curves)}) > 1]
        for label, curves in alike.items()
    }
    return [
        ", ".join([line.label, *(show(line.curve) for show in telling[line.label])])
        for line in figure.lines
    ]


def descriptions(figure: Figure) -> dict[str, str]:
    """What each line is, by its label."""
    return {
        label: _description(line.curve)
        for label, line in zip(labels(figure), figure.lines, strict=True)
    }


def _description(curve: Curve) -> str:
    """What the curve is; the rate where anything beyond the paper makes it worth saying."""
    captions = {
        name: setting.caption(curve)
        for name, setting in settings.ranked(Curve)
        if setting.caption is not None
    }
    words = [word for word in captions.values() if word]
    beyond = any(captions[name] for name in captions if not settings.settings(Curve)[name].of_paper)
    if beyond or curve.learning_rate != 0.1:
        words.append(f"η = {curve.learning_rate:g}")
    if curve.warm:
        words.append("warm: it starts from everybody’s answer at the initial model")
    return "; ".join(words)
