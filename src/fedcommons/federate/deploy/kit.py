"""A startup kit for each site: a folder to unpack, with all that is the same for everybody.

The server's operator makes it. It has no private key: those of a site are made at the site, and
never leave it. What a site does not change in it is safe.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from string import Template

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.deploy import requirements
from fedcommons.federate.deploy.certificates import Tls, is_for
from fedcommons.federate.deploy.site_folder import FILE, SiteFolder
from fedcommons.federate.protocol import durable
from fedcommons.federate.site.policy import Policy
from fedcommons.federate.site.reviewed_apps import files_in

README = Template("""\
# $site: your part of the federation

You need Python 3.11 or newer on Linux or macOS, and a way out to $server. Your data stay with
you, but for examples that you mark as shareable. Work as the account that will run it: this folder
is for that account alone. The server's operator wrote it; it contains no secrets.

## 1. Install

In the same versions as at the server. `requirements.txt` is what you install: look at it first.

```sh
python3 -m venv /opt/fedcommons
. /opt/fedcommons/bin/activate
python -m pip install -r requirements.txt
```

## 2. Make your keys, name your data, know the others

```sh
fedcommons federate join .
```

makes two keys, which stay here. It prints

- the fingerprint of `ca.pem`: ask the operator, by telephone perhaps, whether it is the right one,
  `$fingerprint`;
- where `node.pub` is: send it to the operator, who lets your SuperNode in;
- your identity, 64 digits: send it to the *other sites*, not through the server, and write theirs
  into `peers.toml`.

Name your data file in `site.toml`, and say in `store/policy.toml` what the server may ask for; what
stands there already are the safe rules.
$app

## 3. Check, and start

```sh
fedcommons federate check .
fedcommons federate start .
```

`check` says what is wrong before anything runs: versions, keys, data, the way to the server, the
clock. `start` runs until it is stopped. To have it started with the machine, and again
if it ends:

```sh
fedcommons federate units .
```
""")
APP = (
    "The folder `app` is what the server will have your SuperNode run: read it, see what it may\n"
    "do (`fedcommons federate review app`), and put its hash into `apps`."
)
NO_APP = (
    "Ask for the app that the server will have your SuperNode run: read it, see what it may\n"
    "do (`fedcommons federate review`), and put its hash into `apps`."
)
SITE = Template("""\
# What the SuperNode of $site is started with. Paths are relative to this folder.
site = $quoted
server = $server
data = "data.npz"              # or .parquet, .csv
# held-out = "held-out.npz"    # examples that only measure the model
store = "store"                # keys, what was received, the ledger, policy.toml
peers = "peers.toml"           # the identities of the other sites
# port = 9094                  # of the SuperNode's own processes, on loopback

# [node-config]                # how to read the data, and what this site tells
# label-column = "label"
# tell-means = false
""")
PEERS = Template("""\
# The identities of the other sites, as they told you, not through the server.
[peers]
$lines""")
POLICY = """\
# What the server may ask of this site. These are the rules that hold without a word;
# docs/privacy.md says what each is for. Take the # away to change one.
"""


def write_kits(
    folder: Path,
    sites: Sequence[str],
    tls: Path,
    *,
    server: str,
    app: Path | None = None,
    more: Sequence[str] = (),
) -> dict[str, Path]:
    """Write an archive SITE.tar.gz for each site; `more` are requirements of the app."""
    if len(set(sites)) != len(sites) or not sites:
        raise ArgumentError(f"site must name each site once, got {', '.join(sites) or 'none'}")
    for site in sites:
        SiteFolder(folder, site, server)  # checks both
    ca = Tls(tls).ca
    try:
        certificate = ca.read_bytes()
    except OSError as error:
        raise ArgumentError(f"tls must be a folder that `federate tls` wrote: {error}") from None
    host = server.rpartition(":")[0].strip("[]")
    if not is_for(Tls(tls).certificate, host):
        raise ArgumentError(
            f"server must be a name that {Tls(tls).certificate} is for, or no site can connect, "
            f"got {host!r}: fedcommons federate tls {tls} --host {host}"
        )
    shared = {"ca.pem": certificate, requirements.FILE: requirements.pinned(more).encode()}
    if app is not None:
        shared |= {f"app/{name}": content for name, content in files_in(app).items()}
    durable.make_folder(folder)
    written = {}
    for site in sites:
        text = {
            "README.md": README.substitute(
                site=site,
                server=server,
                fingerprint=fingerprint(ca),
                app=APP if app else NO_APP,
            ),
            FILE: SITE.substitute(site=site, quoted=json.dumps(site), server=json.dumps(server)),
            "peers.toml": PEERS.substitute(lines=_peers(sites, site)),
            "store/policy.toml": POLICY + _rules(),
        }
        files = shared | {name: content.encode() for name, content in text.items()}
        written[site] = folder / f"{site}.tar.gz"
        durable.write_file(written[site], _packed(site, files), "kit")
    return written


def fingerprint(certificate: Path) -> str:
    """The SHA-256 of a certificate, as people compare it."""
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError) as error:
        raise FederationError(f"{certificate} cannot be read: {error}") from None
    return found.fingerprint(hashes.SHA256()).hex(":").upper()


def _peers(sites: Sequence[str], own: str) -> str:
    return "".join(f'# {json.dumps(site)} = "64 digits"\n' for site in sites if site != own)


def _rules() -> str:
    """The safe rules, each as a comment."""
    safe = Policy()
    lines = []
    for field in fields(safe):
        value = getattr(safe, field.name)
        shown = json.dumps(list(value) if isinstance(value, tuple) else value)
        lines.append(f"# {field.name.replace('_', '-')} = {shown}\n")
    return "".join(lines)


def _packed(site: str, files: dict[str, bytes]) -> bytes:
    """A folder of the site's name, which only its owner may read."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        folders = {parent for name in files for parent in Path(site, name).parents if parent.name}
        for folder in sorted(folders):
            member = tarfile.TarInfo(folder.as_posix())
            member.type, member.mode = tarfile.DIRTYPE, 0o700
            tar.addfile(member)
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(f"{site}/{name}")
            member.size, member.mode = len(content), 0o600
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
