"""Whether a site's folder is ready: what a SuperNode would stumble over, before it is started."""

from __future__ import annotations

import datetime
import email.utils
import http.client
import ssl
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from fedcommons.errors import FedcommonsError, FederationError
from fedcommons.federate.deploy import requirements
from fedcommons.federate.deploy.certificates import WARN_DAYS, days_left
from fedcommons.federate.deploy.site_folder import SiteFolder
from fedcommons.federate.site.data_files import load_site_data
from fedcommons.federate.site.peers_file import read_peers
from fedcommons.federate.site.policy import read_policy
from fedcommons.federate.site.status import status_of, summary_of
from fedcommons.federate.site.store import Store

SECONDS = 10.0
AHEAD, BEHIND = 4, 300  # seconds: a SuperLink refuses what is signed 5 s ahead of it, 305 s behind


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, and what was found, or is wrong."""

    what: str
    is_good: bool
    said: str


def findings(place: SiteFolder) -> list[Finding]:
    """Everything that can be looked at without starting a SuperNode; nothing leaves the site."""
    looks: dict[str, Callable[[SiteFolder], str]] = {
        "versions": _versions,
        "keys": _keys,
        "store": _store,
        "policy": _policy,
        "peers": _peers,
        "data": _data,
        "held-out": _held_out,
        "link": _link,
    }
    found = []
    for what, look in looks.items():
        try:
            said = look(place)
            if said:
                found.append(Finding(what, True, said))
        except FedcommonsError as error:
            found.append(Finding(what, False, str(error)))
        except (OSError, ValueError) as error:
            found.append(Finding(what, False, f"{type(error).__name__}: {error}"))
    return found


def _versions(place: SiteFolder) -> str:
    path = place.folder / requirements.FILE
    if not path.exists():
        return ""
    try:
        other = requirements.differences(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FederationError(f"{path} cannot be read: {error}") from None
    if other:
        raise FederationError(f"not as at the server: {'; '.join(other)}: pip install -r {path}")
    return f"all packages of {requirements.FILE} are installed in the server's versions"


def _keys(place: SiteFolder) -> str:
    for path in (place.node_key, place.public_key):
        if not path.exists():
            raise FederationError(f"{path} is missing: fedcommons federate join {place.folder}")
    if stat.S_IMODE(place.node_key.stat().st_mode) & 0o077:
        raise FederationError(f"others may read {place.node_key}: chmod 600 {place.node_key}")
    try:
        private = serialization.load_ssh_private_key(place.node_key.read_bytes(), None)
        public = serialization.load_ssh_public_key(place.public_key.read_bytes())
    except (OSError, ValueError) as error:
        raise FederationError(
            f"{place.node_key} or {place.public_key.name} is damaged: {error}"
        ) from None
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    if private.public_key().public_bytes(*form) != public.public_bytes(*form):
        raise FederationError(f"{place.public_key} is not the public half of {place.node_key}")
    return "node.key is there, and only you can read it"


def _store(place: SiteFolder) -> str:
    store = Store(place.store_folder)
    try:
        found = status_of(store)
        with tempfile.TemporaryFile(dir=place.store_folder) as file:
            file.write(b"0")
    finally:
        store.close()
    return f"whole and writable, key {found['identity'][:16]}..."


def _policy(place: SiteFolder) -> str:
    policy = read_policy(place.store_folder)
    apps = f"{len(policy.apps)} reviewed" if policy.apps else "any, since none is named"
    return f"min-examples {policy.min_examples}, min-sites {policy.min_sites}, apps: {apps}"


def _peers(place: SiteFolder) -> str:
    if place.peers_file is None:
        return "the first key under a name is trusted: for trials alone"
    keys = read_peers(place.peers_file).keys
    store = Store(place.store_folder)
    try:
        own = {identity.name for identity in store.keyring.identities}
    finally:
        store.close()
    others = {site: key for site, key in keys.items() if site != place.site and key not in own}
    needed = read_policy(place.store_folder).min_sites - 1
    if len(others) < needed:
        raise FederationError(
            f"{place.peers_file} must have the keys of at least {needed} other sites (min-sites), "
            f"got {len(others)}"
        )
    return f"keys of {', '.join(sorted(others))} are pinned"


def _data(place: SiteFolder) -> str:
    return _summary(place, place.data_file)


def _held_out(place: SiteFolder) -> str:
    return "" if place.held_out_file is None else _summary(place, place.held_out_file)


def _summary(place: SiteFolder, path: Path) -> str:
    more = place.more
    with tempfile.TemporaryDirectory() as spool:
        data = load_site_data(
            path,
            spool=Path(spool),
            label=str(more.get("label-column", "label")),
            shareable=str(more.get("shareable-column", "shareable")),
            ground=str(more.get("ground-column", "ground")),
            separator=str(more.get("separator", ",")),
            decimal=str(more.get("decimal", ".")),
        )
        found = summary_of(data)
    scales = f"; scales are {found['scales']}" if "scales" in found else ""
    return (
        f"{found['examples']} examples of {found['an_example']}, {found['shareable']} may be "
        f"shared, labels {found['labels']}{scales}"
    )


def _link(place: SiteFolder) -> str:
    """Whether the server answers by a certificate of the federation, and what time it has there."""
    host, _, port = place.server.rpartition(":")
    if not place.ca.exists():
        raise FederationError(f"{place.ca} is missing")
    try:
        context = ssl.create_default_context(cafile=str(place.ca))
    except OSError as error:
        raise FederationError(f"{place.ca} is damaged: {error}") from None
    link = http.client.HTTPSConnection(
        host.strip("[]"),
        int(port),
        timeout=SECONDS,
        context=context,
    )
    try:
        link.connect()
        shown = link.sock.getpeercert(binary_form=True) or b""
        link.request("GET", "/")
        date = link.getresponse().headers.get("Date")
    except ssl.SSLCertVerificationError as error:
        raise FederationError(
            f"{place.server} does not show a certificate for that name by {place.ca.name}: "
            f"{error.verify_message}"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise FederationError(
            f"{place.server} does not answer ({error}): is it up, does the firewall let you out?"
        ) from None
    finally:
        link.close()
    left = days_left(x509.load_der_x509_certificate(shown))
    ends = f"; its certificate ends in {left} days" if left < WARN_DAYS else ""
    return f"{place.server} answers by TLS{_clock(date)}{ends}"


def _clock(date: str | None) -> str:
    """What a server's time says of this machine's; it is told in whole seconds."""
    if date is None:
        return ""
    theirs = email.utils.parsedate_to_datetime(date)
    ahead = (datetime.datetime.now(datetime.UTC) - theirs).total_seconds()
    if ahead > AHEAD + 1 or ahead < -BEHIND:
        side = "ahead of" if ahead > 0 else "behind"
        raise FederationError(
            f"this machine's clock is {abs(ahead):.0f} s {side} the server's, which refuses that: "
            "set one of them (timedatectl set-ntp true)"
        )
    return f"; clocks are {abs(ahead):.0f} s apart"
