"""`fedcommons federate kit`, `join`, `start` and `units`: from an operator to a site that runs."""

from __future__ import annotations

import os
import shlex
import tomllib
from pathlib import Path
from typing import Annotated

import typer

from fedcommons.cli import screen
from fedcommons.cli.extras import need_flower
from fedcommons.cli.options import AsJson
from fedcommons.errors import ArgumentError

SitePlace = Annotated[Path, typer.Argument(help="The site's folder, with its site.toml.")]


def kit(
    folder: Annotated[Path, typer.Argument(help="A folder for the kits, one file for each site.")],
    tls: Annotated[Path, typer.Option(help="The folder that `federate tls` wrote.")],
    server: Annotated[str, typer.Option(help="Name and port that sites connect to.")],
    site: Annotated[list[str], typer.Option(help="A site's name; several times for several.")],
    app: Annotated[
        Path | None, typer.Option(help="The app that they will run, for them to review.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a startup kit for each site: unpack, install, join, check, start.

    A kit has the federation's ca.pem, the server's address, the versions of all
    packages here, a policy with safe rules and a README with three steps. It has
    no secrets; a site makes its keys itself. Let the site compare the
    fingerprint of ca.pem with the one that is printed here.

    Example: fedcommons federate kit kits --tls tls --server fed.org:9092 --site a
    """
    need_flower()
    from fedcommons.federate.deploy.certificates import Tls
    from fedcommons.federate.deploy.kit import fingerprint, write_kits

    written = write_kits(folder, site, tls, server=server, app=app, more=_dependencies(app))
    mark = fingerprint(Tls(tls).ca)
    if as_json:
        files = {name: str(path) for name, path in written.items()}
        screen.say_json({"kits": files, "ca_sha256": mark})
    else:
        screen.say(*written.values(), f"fingerprint of ca.pem: {mark}")


def _dependencies(app: Path | None) -> list[str]:
    if app is None:
        return []
    path = app / "pyproject.toml"
    try:
        return list(tomllib.loads(path.read_text("utf-8"))["project"].get("dependencies", []))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ArgumentError(f"app must be the folder of a Flower app: {path}: {error}") from None


def join(folder: SitePlace, as_json: AsJson = False) -> None:
    """Make a site's keys in the folder of its kit, and say what to send to whom.

    Given again, it says the same: keys are made once, and stay here.

    Example: fedcommons federate join /srv/hospital-a
    """
    need_flower()
    from fedcommons.federate.deploy import site_folder
    from fedcommons.federate.deploy.kit import fingerprint

    place = site_folder.SiteFolder.read(folder)
    identity, mark = site_folder.join(place), fingerprint(place.ca)
    if as_json:
        screen.say_json(
            {"identity": identity, "node_key": str(place.public_key), "ca_sha256": mark}
        )
        return
    screen.say(
        f"compare with the server's operator, not by this network: ca.pem is {mark}",
        f"send to the server's operator: {place.public_key}",
        "send to the other sites, not through the server, your identity:",
        identity,
    )


def start(folder: SitePlace) -> None:
    """Start a site's SuperNode, as its site.toml says; it runs until it is stopped.

    Example: fedcommons federate start /srv/hospital-a
    """
    need_flower()
    from fedcommons.federate.deploy.site_folder import SiteFolder

    place = SiteFolder.read(folder)
    if not place.ca.exists():
        raise ArgumentError(f"{place.ca} is missing: take it from the kit again")
    if not place.node_key.exists():
        raise ArgumentError(f"{place.node_key} is missing: fedcommons federate join {place.folder}")
    command = place.command()
    os.execve(command[0], command, place.environment())  # noqa: S606 (our own program)


def units(
    folder: Annotated[Path, typer.Argument(help="The server's folder, or a site's.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write them; by default to its folder `units`.")
    ] = None,
    user: Annotated[str, typer.Option(help="The account that they run as.")] = "federation",
    superlink: Annotated[
        str, typer.Option(help="Of a server: address and port of the SuperLink.")
    ] = "127.0.0.1:8000",
    as_json: AsJson = False,
) -> None:
    """Write units of systemd for a server or a site.

    Of a site: the SuperNode. Of a server, whose folder has `tls` and `proxy`:
    the SuperLink, nginx, and a timer that renews the certificate. A unit may
    write to that folder alone and is started again whenever it ends.

    Example: fedcommons federate units /srv/hospital-a
    """
    need_flower()
    from fedcommons.federate.deploy.site_folder import check_address
    from fedcommons.federate.deploy.units import write_units

    check_address("superlink", superlink)
    written = write_units(folder, out or folder / "units", user=user, superlink=superlink)
    names = [path.name for path in written]
    if as_json:
        screen.say_json({"units": [str(path) for path in written]})
        return
    started = [name for name in names if name != "fleet-certificate.service"]
    paths = shlex.join(str(path) for path in written)
    screen.say(
        *written,
        f"As root: cp {paths} /etc/systemd/system/ && systemctl daemon-reload && "
        f"systemctl enable --now {' '.join(started)}",
    )
