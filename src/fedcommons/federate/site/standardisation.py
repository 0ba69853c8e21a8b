"""Inputs on one scale at a site: what it tells of its own examples, and what it does with a scale.

Only inputs of tables are brought to a scale: flat, and of numbers that are no bytes. Pixels have
one scale as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons import scaling, shown
from fedcommons.federate.protocol.example_schema import ExampleForm
from fedcommons.federate.protocol.refusals import ScaleRefused, TooFewExamples
from fedcommons.federate.site.own_data import SiteData
from fedcommons.scaling import Moments, Scale

logger = shown.logger(__name__)

LEAST_EXAMPLES = 32  # of which a site tells moments: those of a few would be the examples


def has_scales(form: ExampleForm) -> bool:
    """Whether the inputs are those of a table, each feature with a scale of its own."""
    return len(form.shape) == 1 and form.dtype.kind in "fiu" and form.dtype != np.uint8


def own_moments(data: SiteData, x: npt.NDArray[Any]) -> Moments:
    """The moments of the site's own examples; refused if they are too few to be told."""
    _check_form(data)
    if len(x) < LEAST_EXAMPLES:
        raise TooFewExamples(
            f"the moments of {len(x)} examples are not told: at least {LEAST_EXAMPLES} are needed"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # the server leaves out what is not finite
        return Moments.of(x)


def scaled(data: SiteData, x: npt.NDArray[Any], scale: Scale | None) -> npt.NDArray[Any]:
    """Inputs on the scale that the server sent, if it sent one."""
    if scale is None or not len(x):
        return x
    _check_form(data)
    if scale.mean.shape != x.shape[1:]:
        raise ScaleRefused(
            f"the scale is of {len(scale.mean)} features, the examples have {x.shape[1]}"
        )
    return scale.apply(x)


def scales_of(data: SiteData) -> str:
    """Which features are on very different scales, in words; empty if there are none."""
    if not has_scales(data.form):
        return ""
    blocks = (block for _, block in data.blocks())
    with np.errstate(over="ignore", invalid="ignore"):
        moments = scaling.total(map(Moments.of, blocks), data.form.shape[0])
        return scaling.far_apart(moments, data.features)


def warn_of_scales(data: SiteData) -> None:
    """Say in this site's log which features are on very different scales."""
    if said := scales_of(data):
        logger.warning(
            "%s: inputs are on very different scales, which slows training or spoils it: %s; "
            'scale = "standard" in the server\'s run config brings them to one',
            data.source,
            said,
        )


def _check_form(data: SiteData) -> None:
    if not has_scales(data.form):
        raise ScaleRefused(
            f'scale = "standard" is for tables, flat inputs of numbers that are no bytes, got '
            f"{data.layout}: divide pixels by 255 instead"
        )
