"""Kits: all that a site needs and no secret; what is wrong at a site is said before it starts.

That sites really start from their kits, and train, is shown in test_deploy_page.py.
"""

import contextlib
import datetime
import email.utils
import json
import ssl
import stat
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.apps.new_app import write_app
from fedcommons.federate.apps.review import review
from fedcommons.federate.deploy import requirements, site_check
from fedcommons.federate.deploy.certificates import write_tls
from fedcommons.federate.deploy.kit import write_kits
from fedcommons.federate.deploy.site_folder import SiteFolder, join
from fedcommons.federate.site.policy import Policy, read_policy
from fedcommons.federate.site.store import Store
from tests.cli.command import run

SITES = ["hospital-a", "hospital-b", "hospital-c"]
SECRET = "PRIVATE KEY"  # noqa: S105 (how files of keys begin)


@pytest.fixture
def server(tmp_path):
    """The server's folder of certificates, and its kits."""
    write_tls(tmp_path / "tls", ["localhost"])
    write_app(tmp_path / "digits")
    kit = ["federate", "kit", tmp_path / "kits", "--tls", tmp_path / "tls", "--app"]
    sites = [word for site in SITES for word in ("--site", site)]
    done = run(*kit, tmp_path / "digits", "--server", "localhost:9092", *sites)
    assert done.returncode == 0, done.stderr
    return tmp_path


def unpacked(server, site):
    with tarfile.open(server / "kits" / f"{site}.tar.gz") as kit:
        kit.extractall(server, filter="tar")
    return server / site


def test_a_kit_is_the_same_for_everybody_but_for_the_names_and_has_no_secret(server):
    for site in SITES:
        folder = unpacked(server, site)
        files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
        kept = [name for name in files if not name.startswith("app/")]
        assert sorted(kept) == [
            *("README.md", "ca.pem", "peers.toml", "requirements.txt", "site.toml"),
            "store/policy.toml",
        ]
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files.values())
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert not any(SECRET in path.read_text() for path in files.values())
        assert files["ca.pem"].read_bytes() == (server / "tls" / "ca.pem").read_bytes()
        assert review(folder / "app").hash == review(server / "digits").hash
        assert read_policy(folder / "store") == Policy()
        uncommented = files["store/policy.toml"].read_text().replace("\n# ", "\n")
        files["store/policy.toml"].write_text(uncommented.split("change one.\n")[1])
        assert read_policy(folder / "store") == Policy()
        others = [other for other in SITES if other != site]
        assert all(f'# "{other}" = ' in files["peers.toml"].read_text() for other in others)
        assert site not in files["peers.toml"].read_text()
    assert "fedcommons==" in files["requirements.txt"].read_text()
    assert requirements.differences(files["requirements.txt"].read_text()) == []


def test_keys_are_made_at_the_site_once(server):
    folder = unpacked(server, "hospital-a")
    place = SiteFolder.read(folder)
    first = json.loads(run("federate", "join", folder, "--json").stdout)
    key = place.node_key.read_bytes()
    assert SECRET.encode() in key
    assert json.loads(run("federate", "join", folder, "--json").stdout) == first
    assert place.node_key.read_bytes() == key
    assert first["ca_sha256"] in (folder / "README.md").read_text()
    public = place.public_key.read_bytes()
    place.public_key.unlink()
    assert run("federate", "join", folder).returncode == 0
    assert place.public_key.read_bytes() == public
    place.node_key.unlink()
    assert "put the key back, or remove node.pub" in run("federate", "join", folder).stderr
    assert "folder must be a site's, with site.toml" in run("federate", "join", server).stderr
    assert stat.S_IMODE(place.store_folder.stat().st_mode) == 0o700
    with contextlib.closing(Store(place.store_folder)) as store:
        assert store.identity.name == first["identity"]
    assert place.node_config == {
        "site": "hospital-a", "data": str(folder / "data.npz"), "store": str(folder / "store"),
        "peers": str(folder / "peers.toml"),
    }  # fmt: skip


@contextlib.contextmanager
def answering(tls, seconds=0):
    """A server with the certificates of a folder, whose clock goes wrong by so many seconds."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response_only(403)
            now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
            self.send_header("Date", email.utils.format_datetime(now))
            self.send_header("Content-Length", "0")
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "server.pem", tls / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_what_a_supernode_would_stumble_over_is_said_before(server):
    folder = unpacked(server, "hospital-a")

    def found():
        return {one.what: one for one in site_check.findings(SiteFolder.read(folder))}

    def wrong():
        return {what: one.said for what, one in found().items() if not one.is_good}

    def aim(port):
        text = (folder / "site.toml").read_text()
        before = SiteFolder.read(folder).server
        (folder / "site.toml").write_text(text.replace(before, f"localhost:{port}"))

    assert set(wrong()) == {"keys", "store", "peers", "data", "link"}
    assert "fedcommons federate join" in wrong()["keys"]
    join(SiteFolder.read(folder))
    peers = {site: f"{k}" * 64 for k, site in enumerate(SITES)}
    lines = [f'{site} = "{key}"\n' for site, key in peers.items()]
    (folder / "peers.toml").write_text(f"[peers]\n{lines[1]}")
    assert "at least 2 other sites (min-sites), got 1" in wrong()["peers"]
    (folder / "peers.toml").write_text(f"[peers]\n{''.join(lines)}")
    np.savez(folder / "data.npz", x=np.ones((40, 2)), y=np.arange(40) % 2, shareable=[True] * 40)
    aim(1)
    assert set(wrong()) == {"link"}
    assert "does not answer" in wrong()["link"]
    with answering(server / "tls") as port:
        aim(port)
        assert not wrong()
        assert "40 examples of float64 2, 40 may be shared" in found()["data"].said
        assert run("federate", "check", folder).returncode == 0
        (folder / "node.key").chmod(0o644)
        done = run("federate", "check", folder)
        assert (done.returncode, "is not ready: keys" in done.stderr) == (8, True)
        (folder / "node.key").chmod(0o600)
        (folder / "requirements.txt").write_text("fedcommons==0.0.1\nnot-there==1\n")
        assert "must be ==0.0.1; not-there is missing" in wrong()["versions"]
        (folder / "requirements.txt").write_text("numpy=2\n--no-index\ngit+https://h/x\n\n# n\n")
        assert "'numpy=2' is no requirement: pip" in wrong()["versions"]
        (folder / "requirements.txt").write_bytes(b"\xff")
        assert "requirements.txt cannot be read" in wrong()["versions"]
        (folder / "requirements.txt").unlink()
        for name, what in (("ca.pem", "link"), ("node.key", "keys")):
            content = (folder / name).read_bytes()
            (folder / name).write_text("nonsense")
            assert f"{name}" in wrong()[what]
            assert "is damaged" in wrong()[what]
            (folder / name).write_bytes(content)
        (folder / "site.toml").write_text(
            (folder / "site.toml").read_text() + '\nheld-out = "none.csv"\n'
        )
        assert "cannot be read" in wrong()["held-out"]
    write_tls(server / "other", ["localhost"])
    for tls, seconds, said in (
        (server / "other", 0, "does not show a certificate for that name by ca.pem"),
        (server / "tls", -60, "s ahead of the server's"),
        (server / "tls", 400, "s behind the server's"),
    ):
        with answering(tls, seconds) as port:
            aim(port)
            assert said in wrong()["link"]
    with answering(server / "tls", 200) as port:  # which a SuperLink accepts
        aim(port)
        assert "link" not in wrong()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('site = "a"\n', "server is missing"),
        ('site = 3\nserver = "h:1"\n', "site must be text in quotes, got 3"),
        ('site = "a b"\nserver = "h:1"\n', "site must be letters"),
        ('site = "a"\nserver = "h"\n', "server must be an address and a port"),
        ('site = "a"\nserver = "h:1; rm"\n', "server must be an address and a port"),
        ('site = "a"\nserver = "h:1"\nport = 99999\n', "port must be an integer"),
        ('site = "a"\nserver = "h:1"\nhost = "b"\n', "'host' must be one of"),
        ('site = "a"\nserver = "h:1"\ndata = 7\n', "data must be a path"),
        ('site = "a"\nserver = "h:1"\n[node-config]\nstore = "x"\n', "node-config: store"),
        ('site = "a"\nserver = "h:1"\n[node-config]\nx = [1]\n', "node-config: x cannot be"),
        ("site = ", "cannot be read"),
    ],
)
def test_a_mistake_in_a_sites_file_is_named(tmp_path, text, said):
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(ArgumentError, match=said):
        SiteFolder.read(tmp_path)
    assert run("federate", "start", tmp_path).returncode == 2


def test_mistakes_of_the_operator_are_named(server, tmp_path):
    for sites, address, said in (
        (["a", "a"], "h:1", "each site once"),
        ([], "h:1", "each site once"),
        (["../a"], "h:1", "site must be letters"),
        (["a"], "h", "server must be an address"),
        (["a"], "h:1", r"server must be a name that .*server\.pem is for, .* got 'h'"),
    ):
        with pytest.raises(ArgumentError, match=said):
            write_kits(tmp_path / "k", sites, server / "tls", server=address)
    with pytest.raises(ArgumentError, match="a folder that `federate tls` wrote"):
        write_kits(tmp_path / "k", ["a"], tmp_path / "none", server="h:1")
    assert not (tmp_path / "k").exists()
    (tmp_path / "tls" / "ca.pem").write_text("nonsense")
    with pytest.raises(FederationError, match=r"ca\.pem cannot be read"):
        write_kits(tmp_path / "k", ["a"], tmp_path / "tls", server="localhost:1")
