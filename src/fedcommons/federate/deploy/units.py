"""Units of systemd for a server's folder or a site's: what starts with the machine, and again.

Each service may write to its folder alone, has no rights beside those of its account, and is
started again whenever it ends.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from string import Template

from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.deploy import programs
from fedcommons.federate.deploy.certificates import Tls
from fedcommons.federate.deploy.fleet_proxy import nginx_command
from fedcommons.federate.deploy.site_folder import FILE, SiteFolder
from fedcommons.federate.protocol.durable import write_file

USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
RENEW_DAYS = 60

HARDENED = """\
UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ReadWritePaths=$folder
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
"""
SERVICE = Template(
    """\
# Written by `fedcommons federate units`.
[Unit]
Description=$what
Wants=network-online.target
After=network-online.target$after
StartLimitIntervalSec=0

[Service]
User=$user
${lines}ExecStart=$command
Restart=always
RestartSec=5
"""
    + HARDENED
    + """
[Install]
WantedBy=multi-user.target
"""
)
RENEWAL = Template(
    """\
# Written by `fedcommons federate units`.
[Unit]
Description=Renewal of the certificate that sites see

[Service]
Type=oneshot
User=$user
ExecStart=$command
ExecStart=+/usr/bin/systemctl reload fleet-proxy.service
"""
    + HARDENED
)
TIMER = """\
# Written by `fedcommons federate units`.
[Unit]
Description=Weekly look at the certificate that sites see

[Timer]
OnCalendar=weekly
Persistent=true

[Install]
WantedBy=timers.target
"""


def write_units(folder: Path, out: Path, *, user: str, superlink: str) -> list[Path]:
    """Write the units of a site's folder, or of a server's, to a folder; their paths."""
    if not USER.fullmatch(user):
        raise ArgumentError(f"user must be the name of an account, got {user!r}")
    folder = folder.absolute()
    if (folder / FILE).exists():
        units = _of_site(SiteFolder.read(folder), user)
    elif (folder / "tls" / "ca.pem").exists():
        units = _of_server(folder, user, superlink)
    else:
        raise ArgumentError(
            f"folder must be a site's, with {FILE}, or the server's, with tls, got {folder}"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FederationError(f"{out} cannot be written: {error}") from None
    for name, text in units.items():
        write_file(out / name, text.encode(), "unit")
    return [out / name for name in units]


def _of_site(place: SiteFolder, user: str) -> dict[str, str]:
    command = [_fedcommons(), "federate", "start", str(place.folder)]
    what = f"SuperNode of {place.site}"
    return {"supernode.service": _service(what, place.folder, user, command)}


def _of_server(folder: Path, user: str, superlink: str) -> dict[str, str]:
    host, _, port = superlink.rpartition(":")
    link = programs.superlink(host, int(port), Tls(folder / "tls"), folder / "superlink.db")
    flower = {**programs.OFFLINE, "FLWR_HOME": str(folder / "flower")}
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    settings = [f"{name}={value}" for name, value in {**flower, "PATH": path}.items()]
    proxy = nginx_command(folder / "proxy")
    proxy[0] = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin") or "/usr/sbin/nginx"
    renew = [_fedcommons(), "federate", "tls", str(folder / "tls"), "--renew", "--within"]
    return {
        "superlink.service": _service(
            "SuperLink of the federation",
            folder,
            user,
            link,
            lines=[f"Environment={_word(setting)}" for setting in settings],
        ),
        "fleet-proxy.service": _service(
            "What sites reach of the SuperLink",
            folder,
            user,
            proxy,
            after=" superlink.service",
            lines=["ExecReload=/bin/kill -HUP $MAINPID", "KillSignal=SIGQUIT", "LimitNOFILE=16384"],
        ),
        "fleet-certificate.service": RENEWAL.substitute(
            user=user,
            folder=_word(str(folder)),
            command=_line([*renew, str(RENEW_DAYS)]),
        ),
        "fleet-certificate.timer": TIMER,
    }


def _service(
    what: str,
    folder: Path,
    user: str,
    command: Sequence[str],
    *,
    after: str = "",
    lines: Sequence[str] = (),
) -> str:
    return SERVICE.substitute(
        what=what.replace("%", "%%"),
        after=after,
        user=user,
        folder=_word(str(folder)),
        lines="".join(f"{line}\n" for line in lines),
        command=_line(command),
    )


def _fedcommons() -> str:
    return str(Path(sys.executable).with_name("fedcommons"))


def _line(command: Sequence[str]) -> str:
    """A command as systemd reads it, on lines that people can read."""
    options: list[str] = []  # each with its value
    for word in (_word(word).replace("$", "$$") for word in command):
        if options and not word.startswith("-"):
            options[-1] += f" {word}"
        else:
            options.append(word)
    lines = options[:1]
    for option in options[1:]:
        if len(lines[-1]) + len(option) > 88:
            lines.append(option)
        else:
            lines[-1] += f" {option}"
    return " \\\n  ".join(lines)


def _word(text: str) -> str:
    """One word of a unit; a percent sign is one, and not the beginning of a specifier."""
    if any(not c.isprintable() for c in text):
        raise ArgumentError(f"a unit cannot contain {text!r}")
    safe = text.replace("%", "%%")
    if shlex.quote(text) == text or not set(text) & set(" \t\"'\\;"):
        return safe
    escaped = safe.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
