"""The pages of the API: one for each public module, from its `__all__` and its docstrings.

They are written into docs/api before Sphinx looks for pages, and are not kept in the repository.
"""

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from docstrings import restructured
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

import fedcommons


def public_modules(module: ModuleType = fedcommons) -> Iterator[ModuleType]:
    """The package, the modules that it shows, and those that they show."""
    yield module
    for name in module.__all__:
        shown = getattr(module, name)
        if inspect.ismodule(shown):
            yield from public_modules(shown)


def constants() -> dict[str, list[str]]:
    """The docstrings below module-level names, by name, in the whole package.

    A name is defined once; where it is shown from, autodoc does not find what stands below it.
    """
    found: dict[str, list[str]] = {}
    root = Path(inspect.getfile(fedcommons)).parent
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        for (scope, attribute), text in ModuleAnalyzer.for_module(name).find_attr_docs().items():
            if not scope:
                found.setdefault(attribute, text)
    return found


def headed(text: str) -> list[str]:
    return [text, "=" * len(text), ""]


def member(module: str, name: str, value: Any, described: dict[str, list[str]]) -> list[str]:
    """The directive for one public name."""
    full = f"{module}.{name}"
    if inspect.isclass(value):
        return [f".. autoclass:: {full}", "   :members:", ""]
    if inspect.isroutine(value):
        return [f".. autofunction:: {full}", ""]
    text = restructured(described.get(name, []))
    caption = getattr(value, "caption", None)
    if not text and isinstance(caption, str) and caption:
        text = restructured([f"{caption[0].upper()}{caption[1:]}."])
    if not text and isinstance(value, Mapping):
        names = ", ".join(f"`{key}`" for key in value)
        text = restructured([f"By name: {names}."])
    shown = [f"   :value: {value!r}"] if isinstance(value, str | int | float | tuple) else []
    shown = [line for line in shown if len(line) < 120]
    return [f".. py:data:: {full}", *shown, "", *(f"   {line}" for line in text), ""]


def page(module: ModuleType, described: dict[str, list[str]]) -> str:
    """A module's page."""
    name = module.__name__
    title = name.removeprefix("fedcommons.") if module is not fedcommons else "Python interface"
    lines = [*headed(title), f".. automodule:: {name}", "   :no-members:", ""]
    inner = [n for n in module.__all__ if inspect.ismodule(getattr(module, n))]
    if inner:
        lines += [".. toctree::", "   :maxdepth: 1", ""]
        lines += [f"   {name}.{n}" for n in inner] + [""]
    for shown in module.__all__:
        value = getattr(module, shown)
        if not inspect.ismodule(value):
            lines += member(name, shown, value, described)
    return "\n".join(lines)


def write(app: Sphinx) -> None:
    """Write the pages that changed; a page that is as before keeps its time."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    described = constants()
    wanted = {f"{m.__name__}.rst": page(m, described) for m in public_modules()}
    for old in folder.glob("*.rst"):
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
