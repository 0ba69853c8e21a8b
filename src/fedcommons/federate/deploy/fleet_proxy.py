"""The configuration of an nginx that lets SuperNodes, and nobody else, reach a SuperLink.

A SuperLink serves SuperNodes (/v1/fleet/) and operators (/v1/control/, /v1/runtime/) on one port,
and whoever reaches the part for operators may run code at every site. So the SuperLink listens on
loopback, and the sites connect to nginx.

What strangers can do is bounded. A TLS handshake and a request's head must be complete within
`HEAD_SECONDS`, a body must not pause for longer than `BODY_SECONDS`, and the SuperLink hears of a
request only when all of it is here. An address has so many requests at a time and in a second;
beyond that it gets 503, which a SuperNode answers by trying again.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
from dataclasses import dataclass
from pathlib import Path

from fedcommons import checks
from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.deploy.certificates import Tls
from fedcommons.federate.protocol.durable import write_file

HEAD_SECONDS, BODY_SECONDS = 10, 30
QUOTABLE = re.compile(r"[^\"\\$;{}\x00-\x1f\x7f]+")  # what nginx takes in quotes as it is

CONFIGURATION = """\
# Written by `fedcommons federate proxy`, which replaces this file.
daemon off;
{user}worker_processes 2;
worker_rlimit_nofile 16384;
pid "{folder}/nginx.pid";
error_log stderr warn;

events {{
    worker_connections 8192;
}}

http {{
    access_log off;
    server_tokens off;
    client_body_temp_path "{folder}/bodies";
    proxy_temp_path "{folder}/answers";
    fastcgi_temp_path "{folder}/unused";
    uwsgi_temp_path "{folder}/unused";
    scgi_temp_path "{folder}/unused";

    limit_conn_zone $binary_remote_addr zone=at_a_time:10m;
    limit_req_zone $binary_remote_addr zone=in_a_second:10m rate={per_second}r/s;
    limit_conn_log_level warn;
    limit_req_log_level warn;

    server {{
        listen {listen} ssl backlog=4096;
        ssl_certificate "{certificate}";
        ssl_certificate_key "{key}";
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_session_cache shared:tls:10m;

        client_header_timeout {head_seconds}s;
        client_body_timeout {body_seconds}s;
        send_timeout {body_seconds}s;
        lingering_timeout 2s;
        lingering_time 10s;
        reset_timedout_connection on;
        client_max_body_size {megabytes}m;
        merge_slashes off;

        location ~ "^/v1/fleet/[a-z-]+$" {{
            limit_except POST {{ deny all; }}
            limit_conn at_a_time {at_a_time};
            limit_req zone=in_a_second burst={burst} delay={per_second};
            proxy_request_buffering on;
            proxy_pass https://{superlink};
            proxy_ssl_trusted_certificate "{ca}";
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_connect_timeout 10s;
            proxy_read_timeout 60s;
        }}
        location / {{
            return 403;
        }}
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one address may do; sites behind one router share it.

    A SuperNode has up to six requests at a time. Flower's largest messages come in parts of
    some 20 MB, ours have 16 MB.

    Attributes:
        at_a_time: requests whose head is complete.
        per_second: requests a second. As many again pass at once, up to four times as many are
            slowed down to that rate, and what is more is refused.
        megabytes: the size of one request.
    """

    at_a_time: int = 64
    per_second: int = 100
    megabytes: int = 64

    def __post_init__(self) -> None:
        for name, high in (("at_a_time", 4096), ("per_second", 10_000), ("megabytes", 4096)):
            checks.integer(name, getattr(self, name), low=1, high=high)


def write_nginx(folder: Path, tls: Tls, *, listen: str, superlink: str, limits: Limits) -> Path:
    """Write `nginx.conf` to a folder of its own, where nginx also keeps what is on its way.

    `listen` and `superlink` are addresses with ports, as they were checked by the caller.
    """
    text = CONFIGURATION.format(
        folder=_quotable("folder", folder),
        listen=listen,
        superlink=superlink,
        ca=_quotable("tls", tls.ca),
        certificate=_quotable("tls", tls.certificate),
        key=_quotable("tls", tls.key),
        head_seconds=HEAD_SECONDS,
        body_seconds=BODY_SECONDS,
        megabytes=limits.megabytes,
        at_a_time=limits.at_a_time,
        per_second=limits.per_second,
        burst=4 * limits.per_second,
        user=_user(tls.ca),
    )
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise FederationError(f"{folder} cannot be written: {error}") from None
    path = folder / "nginx.conf"
    write_file(path, text.encode(), "proxy.configuration")
    return path


def _user(owned: Path) -> str:
    """Started by root, nginx serves as the owner of the TLS files; by others, as themselves."""
    if os.geteuid():
        return ""
    status = owned.stat()
    try:
        user, group = pwd.getpwuid(status.st_uid).pw_name, grp.getgrgid(status.st_gid).gr_name
    except KeyError:  # nobody that has a name
        return ""
    return f"user {user} {group};\n"


def nginx_command(folder: Path) -> list[str]:
    """The command that starts the nginx of a folder of `write_nginx`; it stays in front."""
    whole = folder.absolute()
    return ["nginx", "-e", "stderr", "-p", str(whole), "-c", str(whole / "nginx.conf")]


def _quotable(name: str, path: Path) -> str:
    """The whole path; nginx would read more than a path into some characters."""
    text = str(path.absolute())
    if not QUOTABLE.fullmatch(text):
        raise ArgumentError(
            f"{name} must be a path without quotes, backslashes, $, ;, braces and control "
            f"characters, got {text!r}"
        )
    return text
