"""`fedcommons federate tls`, `node-key` and `proxy`: what a deployment needs besides Flower."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedcommons.cli.extras import need_flower
from fedcommons.cli.options import AsJson
from fedcommons.errors import ArgumentError


def tls(
    folder: Annotated[Path, typer.Argument(help="The folder for keys and certificates.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address of the server; may be given several times."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a server certificate, by the authority in the folder or a new one.

    Give the sites ca.pem; keep ca.key and server.key. The certificate is for loopback too, and
    lasts 397 days: the same command renews it, and the sites need not change anything.

    Example: fedcommons federate tls /srv/federation/tls --host federation.example.org
    """
    need_flower()
    from fedcommons.federate.deploy.certificates import write_tls

    made = write_tls(folder, host or [])
    files = {"ca": str(made.ca), "certificate": str(made.certificate), "key": str(made.key)}
    typer.echo(json.dumps(files, indent=2) if as_json else "\n".join(files.values()))


def node_key(
    path: Annotated[Path, typer.Argument(help="The private key's file, new.")],
    as_json: AsJson = False,
) -> None:
    """Make the key by which a SuperLink knows a SuperNode; its public half ends in .pub.

    Example: fedcommons federate node-key /srv/hospital-a/node.key
    """
    need_flower()
    from fedcommons.federate.deploy.certificates import write_node_key

    public = write_node_key(path)
    typer.echo(json.dumps({"public": str(public)}) if as_json else str(public))


def proxy(
    tls_folder: Annotated[Path, typer.Option("--tls", help="What `federate tls` wrote.")],
    listen: Annotated[str, typer.Option(help="Address and port for the sites.")] = "0.0.0.0:9092",
    superlink: Annotated[
        str, typer.Option(help="Address and port of the SuperLink.")
    ] = "127.0.0.1:8000",
) -> None:
    """Let SuperNodes reach a SuperLink on loopback, and nobody else: /v1/fleet/ alone is passed on.

    Example: fedcommons federate proxy --tls /srv/federation/tls --listen 0.0.0.0:9092
    """
    need_flower()
    from fedcommons.federate.deploy.certificates import Tls
    from fedcommons.federate.deploy.fleet_proxy import serve

    host, port = _address("listen", listen)
    _address("superlink", superlink)
    files = Tls(tls_folder / "ca.pem", tls_folder / "server.pem", tls_folder / "server.key")
    missing = [str(file) for file in (files.ca, files.certificate, files.key) if not file.exists()]
    if missing:
        raise ArgumentError(f"tls must be a folder that `federate tls` wrote, without {missing[0]}")
    serve(host, port, superlink, files)


def _address(name: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        raise ArgumentError(
            f"{name} must be an address and a port up to 65535, as in 0.0.0.0:9092, got {text!r}"
        )
    return host, int(port)
