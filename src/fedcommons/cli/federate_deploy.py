"""`fedcommons federate tls`, `node-key` and `proxy`: what a deployment needs besides Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcommons.cli import screen
from fedcommons.cli.extras import need_flower
from fedcommons.cli.options import AsJson
from fedcommons.errors import ArgumentError


def tls(
    folder: Annotated[Path, typer.Argument(help="The folder for keys and certificates.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address of the server; can be given several times."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a certificate for the server, signed by the federation's own authority.

    The authority is made if the folder has none. Give the sites ca.pem; keep
    ca.key and server.key secret. The certificate is valid for localhost too,
    and for 397 days. The same command renews it; sites need not do anything.

    Example: fedcommons federate tls tls --host federation.example.org
    """
    need_flower()
    from fedcommons.federate.deploy.certificates import write_tls

    made = write_tls(folder, host or [])
    files = {"ca": str(made.ca), "certificate": str(made.certificate), "key": str(made.key)}
    if as_json:
        screen.say_json(files)
    else:
        screen.say(*files.values())


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
    tls_folder: Annotated[
        Path, typer.Option("--tls", help="The folder that `federate tls` wrote.")
    ],
    listen: Annotated[
        str, typer.Option(help="Address and port that sites connect to.")
    ] = "0.0.0.0:9092",
    superlink: Annotated[
        str, typer.Option(help="Address and port of the SuperLink.")
    ] = "127.0.0.1:8000",
) -> None:
    """Let SuperNodes, and nobody else, reach a SuperLink on loopback.

    Only requests to /v1/fleet/ are passed on. Whoever reaches the rest of a
    SuperLink may run code at every site.

    Example: fedcommons federate proxy --tls /srv/federation/tls
    """
    need_flower()
    from fedcommons.federate.deploy.certificates import Tls
    from fedcommons.federate.deploy.fleet_proxy import serve

    host, port = _address("listen", listen)
    _address("superlink", superlink)
    files = Tls(tls_folder / "ca.pem", tls_folder / "server.pem", tls_folder / "server.key")
    missing = [str(file) for file in (files.ca, files.certificate, files.key) if not file.exists()]
    if missing:
        raise ArgumentError(
            f"tls must be a folder that `federate tls` wrote, but {missing[0]} is missing"
        )
    serve(host, port, superlink, files)


def _address(name: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        raise ArgumentError(
            f"{name} must be an address and a port up to 65535, as in 0.0.0.0:9092, got {text!r}"
        )
    return host, int(port)
