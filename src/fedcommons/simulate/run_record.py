"""run.json, the record of a results folder: what was run, where, and how long it took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedcommons.errors import ResultsError, StudyError
from fedcommons.json_file import read_json
from fedcommons.simulate import definition
from fedcommons.simulate.definition import Study

NAME = "run.json"
FORMAT = "fedcommons.results"
VERSION = 2
KINDS: dict[str, tuple[type, ...]] = {  # what the record and its invocations hold, if they do
    "digest": (str,),
    "study": (dict,),
    "data": (dict,),
    "command": (str,),
    "versions": (dict,),
    "machine": (dict,),
    "commit": (str, type(None)),
    "seconds": (int, float),
    "invocations": (list,),
}


def read(folder: Path) -> dict[str, Any]:
    """The record of a results folder, checked."""
    path = folder / NAME
    try:
        content = read_json(path, ResultsError)
    except FileNotFoundError:
        raise ResultsError(f"{folder} is not a results folder: {NAME} is missing") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ResultsError(f"{path} is not a record of fedcommons results")
    if "study" not in content or "digest" not in content:
        raise ResultsError(f"{path} must hold the study and its digest")
    if content.get("version") != VERSION:
        raise ResultsError(
            f"{folder} must be results of version {VERSION}, got {content.get('version')}"
        )
    _check_kinds(path, content)
    for invocation in content.get("invocations", []):
        if not isinstance(invocation, dict):
            raise ResultsError(f"{path}: {invocation!r} is no invocation")
        _check_kinds(path, invocation)
    return content


def _check_kinds(path: Path, entry: dict[str, Any]) -> None:
    words = entry["data"].get("words", []) if isinstance(entry.get("data"), dict) else []
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ResultsError(f"{path}: the words about the data must be strings, got {words!r}")
    for key, kinds in KINDS.items():
        if key in entry and not isinstance(entry[key], kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise ResultsError(f"{path}: {key} must be {names}, got {entry[key]!r}")


def study_of(folder: Path, record: dict[str, Any]) -> Study:
    """The study that a record is of."""
    path = folder / NAME
    try:
        study = definition.from_dict(record["study"])
    except StudyError as error:
        raise ResultsError(f"{path}: {error}") from None
    words = [study.name, study.dataset]
    for figure in study.figures:
        words += [figure.title, *(line.label for line in figure.lines)]
        if figure.kind not in definition.KINDS:
            raise ResultsError(
                f"{path}: kind must be one of {', '.join(definition.KINDS)}, got {figure.kind!r}"
            )
        if not isinstance(figure.name, str) or not definition.FIGURE_NAME.fullmatch(figure.name):
            raise ResultsError(f"{path}: {figure.name!r} cannot name a figure")
    for word in words:
        if not isinstance(word, str):
            raise ResultsError(f"{path}: names must be strings, got {word!r}")
    return study
