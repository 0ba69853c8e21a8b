"""`fedcommons federate check`: what a site would bring, before anything of it runs."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fedcommons import checks
from fedcommons.cli import screen
from fedcommons.cli.extras import need_flower
from fedcommons.cli.federate_site import print_status
from fedcommons.cli.options import AsJson
from fedcommons.errors import FederationError


def check(
    data: Annotated[
        Path,
        typer.Argument(help="A data file (.npz, .parquet, .csv), or a site's folder from its kit."),
    ],
    label_column: Annotated[
        str, typer.Option(help="Column of labels; several: time,event.")
    ] = "label",
    shareable_column: Annotated[
        str, typer.Option(help="Column that says what may be shared.")
    ] = "shareable",
    ground_column: Annotated[
        str, typer.Option(help="Column of the grounds on which rows may be shared.")
    ] = "ground",
    classes: Annotated[
        str,
        typer.Option(help="Number of classes in the app, or their names: benign,malignant."),
    ] = "",
    separator: Annotated[str, typer.Option(help="Between the fields of a CSV file.")] = ",",
    decimal: Annotated[str, typer.Option(help="In the numbers of a CSV file.")] = ".",
    as_json: AsJson = False,
) -> None:
    """Check a site's data file: what a federation would read, or what is wrong.

    Nothing leaves this machine, and no SuperNode needs to run. Given the folder
    of a kit, all that a SuperNode needs is checked: versions, keys, the store,
    policy, peers, data, the way to the server, and the clock. Then it ends with
    exit code 8 if anything is wrong, and options are those of site.toml.

    Example: fedcommons federate check /srv/hospital-a/data.npz
    """
    need_flower()
    if data.is_dir():
        _check_folder(data, as_json=as_json)
        return
    from fedcommons.federate.site.data_files import load_site_data
    from fedcommons.federate.site.status import summary_of

    n_classes = int(classes) if classes.lstrip("-").isdecimal() else None
    names = [name.strip() for name in classes.split(",")] if classes and n_classes is None else None
    with tempfile.TemporaryDirectory() as spool:
        found = load_site_data(
            data,
            spool=Path(spool),
            label=label_column,
            shareable=shareable_column,
            ground=ground_column,
            classes=names,
            separator=separator,
            decimal=decimal,
        )
        if n_classes is not None:
            found = replace(found, n_classes=checks.integer("classes", n_classes, low=1))
        summary = summary_of(found)
    if as_json:
        screen.say_json(summary)
    else:
        print_status(summary)


def _check_folder(folder: Path, *, as_json: bool) -> None:
    from fedcommons.federate.deploy.site_check import findings
    from fedcommons.federate.deploy.site_folder import SiteFolder

    found = findings(SiteFolder.read(folder))
    wrong = [one.what for one in found if not one.is_good]
    if as_json:
        screen.say_json({one.what: {"good": one.is_good, "said": one.said} for one in found})
    else:
        for one in found:
            screen.say(f"{'ok' if one.is_good else 'WRONG':6} {one.what:9} {one.said}")
    if wrong:
        raise FederationError(f"{folder} is not ready: {', '.join(wrong)}")
