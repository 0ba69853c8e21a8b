"""`fedcommons federate tls`, `node-key` and `proxy`: what a deployment needs besides Flower."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fedcommons import checks
from fedcommons.cli import screen
from fedcommons.cli.extras import need_flower
from fedcommons.cli.options import AsJson
from fedcommons.errors import ArgumentError, FederationError


def tls(
    folder: Annotated[Path, typer.Argument(help="The folder for keys and certificates.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address of the server; can be given several times."),
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Replace the certificate by one for the same hosts.")
    ] = False,
    within: Annotated[
        int | None, typer.Option(help="With --renew: only if it has fewer days left than this.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Say how long the certificates last, and change nothing."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a certificate for the server, signed by the federation's own authority.

    The authority is made if the folder has none. Give the sites ca.pem; keep
    all files that end in .key secret. The certificate is valid for localhost
    too, and for 397 days. Renew it before that; sites need not do anything.
    --check ends with exit code 8 if a certificate has fewer than 30 days left.

    Example: fedcommons federate tls tls --host federation.example.org
    """
    need_flower()
    from fedcommons.federate.deploy import certificates

    if bool(host) + renew + check > 1:
        raise ArgumentError("only one of --host, --renew and --check may be given")
    if within is not None:
        if not renew:
            raise ArgumentError("within only has a meaning with --renew")
        checks.integer("within", within, low=1, high=certificates.SERVER_DAYS)
    replaced = not check
    if renew:
        replaced = certificates.renew_tls(folder, within_days=within)
    elif not check:
        certificates.write_tls(folder, host or [])
    files = certificates.Tls(folder)
    until = certificates.expiries(folder)
    if as_json:
        found = {
            "ca": str(files.ca),
            "certificate": str(files.certificate),
            "key": str(files.key),
            "replaced": replaced,
            "expires": {path.name: f"{when:%Y-%m-%d}" for path, when in until.items()},
        }
        screen.say_json(found)
    else:
        if renew and not replaced:
            screen.say(f"nothing is renewed: more than {within} days are left")
        screen.say(*(f"{path} is valid until {when:%Y-%m-%d}" for path, when in until.items()))
    _warn_of_expiry(folder, is_error=check)


def _warn_of_expiry(folder: Path, *, is_error: bool = False) -> None:
    from fedcommons.federate.deploy.certificates import expiring

    warnings = expiring(folder)
    if is_error and warnings:
        raise FederationError("; ".join(warnings))
    for warning in warnings:
        screen.say(f"fedcommons: warning: {warning}", err=True)


def node_key(
    path: Annotated[Path, typer.Argument(help="A new file for the private key.")],
    as_json: AsJson = False,
) -> None:
    """Make the key by which a SuperLink recognises a SuperNode.

    The public half is written beside it, to a file that ends in .pub.

    Example: fedcommons federate node-key /srv/hospital-a/node.key
    """
    need_flower()
    from fedcommons.federate.deploy.certificates import write_node_key

    public = write_node_key(path)
    if as_json:
        screen.say_json({"public": str(public)})
    else:
        screen.say(public)


def proxy(
    folder: Annotated[Path, typer.Argument(help="A folder for nginx alone.")],
    tls_folder: Annotated[
        Path, typer.Option("--tls", help="The folder that `federate tls` wrote.")
    ],
    listen: Annotated[
        str, typer.Option(help="Address and port that sites connect to.")
    ] = "0.0.0.0:9092",
    superlink: Annotated[
        str, typer.Option(help="Address and port of the SuperLink.")
    ] = "127.0.0.1:8000",
    at_a_time: Annotated[
        int, typer.Option(help="Requests that one address may have at a time.")
    ] = 64,
    per_second: Annotated[
        int, typer.Option(help="Requests of one address in a second, apart from bursts.")
    ] = 100,
    megabytes: Annotated[int, typer.Option(help="The largest request, in MB.")] = 64,
    as_json: AsJson = False,
) -> None:
    """Write the configuration of an nginx in front of a SuperLink on loopback.

    It lets SuperNodes through, and nobody else: only requests to /v1/fleet/
    are passed on, when they are complete, and each address has its limits.
    Whoever reaches the rest of a SuperLink may run code at every site.

    Example: fedcommons federate proxy proxy --tls /srv/federation/tls
    """
    need_flower()
    from fedcommons.federate.deploy.certificates import Tls
    from fedcommons.federate.deploy.fleet_proxy import Limits, nginx_command, write_nginx
    from fedcommons.federate.deploy.site_folder import check_address

    check_address("listen", listen)
    check_address("superlink", superlink)
    limits = Limits(at_a_time=at_a_time, per_second=per_second, megabytes=megabytes)
    files = Tls(tls_folder)
    for file in (files.ca, files.certificate, files.key):
        if not file.exists():
            raise ArgumentError(
                f"tls must be a folder that `federate tls` wrote, but {file} is missing"
            )
    path = write_nginx(folder, files, listen=listen, superlink=superlink, limits=limits)
    _warn_of_expiry(tls_folder)
    if as_json:
        screen.say_json({"configuration": str(path)})
        return
    screen.say(path, f"Start it: {shlex.join(nginx_command(folder))}")
