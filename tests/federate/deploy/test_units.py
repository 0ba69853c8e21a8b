"""Units of systemd: it accepts them, they are hardened, and the page shows what is written."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedcommons.errors import ArgumentError
from fedcommons.federate.deploy.certificates import write_tls
from fedcommons.federate.deploy.units import write_units
from tests.federate.deploy.test_deploy_page import blocks

SITE = 'site = "hospital-a"\nserver = "federation.example.org:9092"\n'
EXPOSED = 2.5  # of 10, by systemd's own count


@pytest.fixture
def units(tmp_path):
    """The units of a server and of a site, by name, in folders with a space and a percent sign."""
    server, site = tmp_path / "srv" / "a server", tmp_path / "srv" / "100% site"
    write_tls(server / "tls")
    (server / "proxy").mkdir()
    site.mkdir()
    (site / "site.toml").write_text(SITE)
    found = []
    for folder in (server, site):
        found += write_units(folder, tmp_path / "units", user="root", superlink="127.0.0.1:8000")
    return {path.name: path for path in found}


def test_systemd_accepts_the_units_and_finds_them_safe(units):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd is not installed, so it was not asked about the units")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", *units.values()],
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if "/units/" in line]
    assert (done.returncode, said) == (0, []), done.stderr
    for name, path in units.items():
        if name.endswith(".service"):
            said = subprocess.run(
                ["systemd-analyze", "security", "--offline=true", path],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            assert float(re.search(r"exposure level for \S+: ([\d.]+)", said)[1]) < EXPOSED


def test_every_service_is_hardened_and_started_again(units):
    """What can be seen without systemd."""
    services = {name: path.read_text() for name, path in units.items() if "service" in name}
    assert len(services) == 4
    for name, text in services.items():
        for line in ("User=root", "NoNewPrivileges=yes", "ProtectSystem=strict", "UMask=0077"):
            assert f"\n{line}\n" in text
        (writable,) = re.findall(r"^ReadWritePaths=(.*)$", text, re.M)
        assert writable in (
            f'"{units_folder(units)}/a server"',
            f'"{units_folder(units)}/100%% site"',
        )
        if name != "fleet-certificate.service":
            assert "\nRestart=always\n" in text
            assert "\nStartLimitIntervalSec=0\n" in text


def units_folder(units) -> Path:
    return next(iter(units.values())).parents[1] / "srv"


def test_the_page_shows_what_is_written(tmp_path):
    """With the page's folders in place of those here."""
    server, site = tmp_path / "federation", tmp_path / "hospital-a"
    write_tls(server / "tls")
    site.mkdir()
    (site / "site.toml").write_text(SITE)
    written = ""
    for folder in (server, site):
        for path in write_units(
            folder, folder / "u", user="federation", superlink="127.0.0.1:8000"
        ):
            text = path.read_text().replace(str(Path(sys.executable).parent), "/opt/fedcommons/bin")
            text = text.replace(str(tmp_path), "/srv")
            written += re.sub(
                r"^ExecStart=/\S+/nginx ", "ExecStart=/usr/sbin/nginx ", text, flags=re.M
            )
    written = in_one_line(written)
    shown = [in_one_line(block) for _, block in blocks("ini")]
    assert len(shown) == 3
    for block in shown:
        assert block in written


def in_one_line(text: str) -> str:
    """With commands on one line each, however they are wrapped."""
    return re.sub(r" +", " ", text.replace("\\\n", " "))


def test_what_cannot_be_a_unit_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match=r"a site's, with site\.toml, or the server's"):
        write_units(tmp_path, tmp_path, user="federation", superlink="127.0.0.1:8000")
    (tmp_path / "site.toml").write_text(SITE)
    with pytest.raises(ArgumentError, match="the name of an account"):
        write_units(tmp_path, tmp_path, user="a\nb", superlink="127.0.0.1:8000")
    strange = tmp_path / "two\nlines"
    strange.mkdir()
    (strange / "site.toml").write_text(SITE)
    with pytest.raises(ArgumentError, match="a unit cannot contain"):
        write_units(strange, tmp_path / "u", user="federation", superlink="127.0.0.1:8000")
