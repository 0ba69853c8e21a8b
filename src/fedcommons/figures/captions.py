"""The words beside a figure: what it shows, how its lines are called, and what each of them is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedcommons.simulate.curves import AS_IT_IS, Curve
from fedcommons.simulate.studies import Figure

CAPTIONS = {
    "curves": "Test accuracy after each round, and the second moment |ĝ|² of the gradient estimate "
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
    "grid": "Test accuracy for each shareable proportion c and number of copies d. Sharing costs "
    "dc copies per training example, once, before training.",
}
CODES = {
    "equal-split": "",
    "reliability-split": "reliability split: of an example’s holders the reliable send more of it",
    "owner-corrected": "owner-corrected code: copies elsewhere stand in for a missing owner’s data",
}
ESTIMATORS = {
    "coded_sum": "",
    "memory": "memory: the server falls back on a missing client’s last answer, without bias",
    "responder_average": "average over those who answered",
    "wait_for_all": "gradient descent with nobody ever missing, the ceiling",
}


def setting(curve: Curve) -> str:
    if curve.partition == "dirichlet":
        return f"Dirichlet, α = {curve.alpha:g}"
    return {"iid": "IID", "single-class": "single-class"}[curve.partition]


DIFFERENCES: dict[str, Callable[[Curve], str]] = {  # between lines that share a label
    "setting": setting,
    "c": lambda curve: f"c = {curve.proportion:g}",
    "d": lambda curve: f"d = {curve.copies}",
    "algorithm": lambda curve: curve.algorithm,
    "model": lambda curve: curve.model,
    "code": lambda curve: curve.code,
    "estimator": lambda curve: curve.estimator.replace("_", " "),
    "warm": lambda curve: "warm" if curve.warm else "cold",
    "stragglers": lambda curve: curve.stragglers,
    "absence": lambda curve: f"absences of {curve.mean_absence:g}",
    "spread": lambda curve: f"p ± {curve.prob_spread:g}" if curve.prob_spread else "the same p",
    "trace": lambda curve: f"absences of {Path(curve.trace).name}" if curve.trace else "drawn",
    "assumed": lambda curve: (
        "known p" if curve.assumed_prob == AS_IT_IS else f"p taken for {curve.assumed_prob:g}"
    ),
    "steps": lambda curve: f"{curve.local_steps} local steps",
    "batch": lambda curve: f"batches of {curve.batch_size}",
    "server": lambda curve: f"server's rate {curve.server_rate:g}",
    "mu": lambda curve: f"μ = {curve.mu:g}",
    "eta": lambda curve: f"η = {curve.learning_rate:g}",
    "decay": lambda curve: f"decay = {curve.decay:g}",
    "p": lambda curve: f"p = {curve.straggler_prob:g}",
}
PLACES = {  # what a kind has places or a switch for, or does not depend on; the others: p
    "scalar-products": set[str](),
    "grid": {"c", "d", "p"},
    "heterogeneity": DIFFERENCES.keys() - {"setting", "algorithm"},
}


def labels(figure: Figure) -> list[str]:
    """The lines' labels; where several lines share one, what tells them apart is added."""
    left_out = PLACES.get(figure.kind, {"p"})
    shown = [show for name, show in DIFFERENCES.items() if name not in left_out]
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
    words = [setting(curve), CODES[curve.code], ESTIMATORS[curve.estimator]]
    if curve.copies and curve.proportion:
        words.insert(1, f"c = {curve.proportion:g}, d = {curve.copies}")
    elif curve.proportion and curve.method.sharing == "proportion":
        words.insert(1, f"c = {curve.proportion:g}")
    elif curve.estimator != "wait_for_all":
        words.insert(1, "no sharing")
    words += _beyond_the_paper(curve)
    if curve.warm:
        words.append("warm: it starts from everybody’s answer at the initial model")
    return "; ".join(word for word in words if word)


def _beyond_the_paper(curve: Curve) -> list[str]:
    """What of a curve is not as in the paper, apart from its code and estimator."""
    words = []
    if curve.algorithm != "coded_gd":
        words.append(f"{curve.algorithm} ({curve.method.source})")
    if curve.model != "softmax":
        words.append(f"model {curve.model}")
    if curve.local_steps > 1:
        words.append(f"{curve.local_steps} local steps")
    if curve.batch_size:
        words.append(f"batches of {curve.batch_size}")
    if curve.mu:
        words.append(f"μ = {curve.mu:g}")
    if curve.stragglers == "markov":
        words.append(f"absences of {curve.mean_absence:g} rounds on average")
    if curve.trace:
        words.append(f"absences as recorded in {Path(curve.trace).name}")
    if curve.prob_spread:
        words.append(f"clients’ p spread over ± {curve.prob_spread:g}")
    if curve.server_prob != curve.straggler_prob:
        words.append(f"the server takes p for {curve.server_prob:g}")
    if words or curve.learning_rate != 0.1:
        words.append(f"η = {curve.learning_rate:g}")
    return words
