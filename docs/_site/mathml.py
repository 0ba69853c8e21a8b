"""Mathematics as MathML, which browsers draw by themselves: no script, no font, no network."""

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def mathml(node: nodes.Element, *, block: bool) -> str:
    """The element `math` of a formula in LaTeX; one that cannot be read is a warning."""
    try:
        return str(latex2mathml.tex2mathml(node.astext(), as_block=block))
    except MathError as error:
        logger.warning("formula %r: %s", node.astext(), error, location=node)
        return ""


def inline(self: Any, node: nodes.math) -> None:
    self.body.append(mathml(node, block=False))
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math"))
    self.body.append(mathml(node, block=True) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
