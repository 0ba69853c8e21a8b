"""Commands with many options take them in records, one for each thing that they are about."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints

Command = Callable[..., None]


def command(function: Command) -> Command:
    """The command that Typer sees: a function with the fields of the records as its options.

    The parameters of `function` that are dataclasses become their fields, each annotated with its
    option; the other parameters stay.
    """
    kinds = get_type_hints(function, include_extras=True)
    shown: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if is_dataclass(kinds[name]):
            hints = get_type_hints(kinds[name], include_extras=True)
            shown += [_option(field, hints[field.name]) for field in fields(kinds[name])]
        else:
            shown.append(parameter.replace(annotation=kinds[name]))

    def run(**given: Any) -> None:
        arguments = {}
        for name, kind in kinds.items():
            if isinstance(kind, type) and is_dataclass(kind):
                arguments[name] = kind(**{field.name: given[field.name] for field in fields(kind)})
            elif name in given:
                arguments[name] = given[name]
        function(**arguments)

    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    vars(run)["__signature__"] = inspect.Signature(shown)
    return run


def _option(field: Field[Any], annotation: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
