"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Workers = Annotated[int | None, typer.Option(help="Processes; by default one a core.")]

Track = Annotated[
    list[str] | None,
    typer.Option(help="Send numbers to jsonl:FILE, mlflow:URI or tensorboard:DIR; also several."),
]
