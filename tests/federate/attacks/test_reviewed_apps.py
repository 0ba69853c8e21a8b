"""A site with a list of reviewed apps runs no other; what an app may do is shown beforehand."""

import shutil
import warnings
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.cli.install import install_from_fab

from fedcommons.errors import FederationError
from fedcommons.federate.apps.new_app import write_app
from fedcommons.federate.apps.review import review
from fedcommons.federate.protocol.refusals import AppNotReviewed
from fedcommons.federate.site import reviewed_apps
from fedcommons.federate.site.policy import Policy
from fedcommons.federate.site.reviewed_apps import check_app, files_in, hash_of
from tests.federate.tiny import Tiny


@pytest.fixture(scope="module")
def clinics(tmp_path_factory):
    folder = tmp_path_factory.mktemp("apps") / "clinics"
    write_app(folder)
    return folder


@pytest.fixture
def installed(clinics, tmp_path):
    """As Flower installs what it received, at a site."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what Flower itself uses
        packed = build_fab_from_disk(clinics)
        return install_from_fab(packed, tmp_path / "home", skip_prompt=True)


def client_app(folder: Path) -> str:
    return str(folder / "clinics" / "client_app.py")


def test_the_hash_of_a_folder_is_that_of_what_arrives(clinics, installed):
    assert review(clinics).hash == hash_of(files_in(installed))
    (clinics / "clinics" / "__pycache__").mkdir(exist_ok=True)
    assert review(clinics).hash == hash_of(files_in(installed))


def test_the_reviewed_app_runs_and_no_other(clinics, installed):
    policy = Policy(apps=(review(clinics).hash,))
    check_app(policy, client_app(installed))
    task = installed / "clinics" / "task.py"
    task.write_text(task.read_text() + "\nimport socket\n")
    with pytest.raises(AppNotReviewed, match=r"has the hash [0-9a-f]{64}, which apps does not"):
        check_app(policy, client_app(installed))
    check_app(Policy(), client_app(installed))  # no list, any app


@pytest.mark.parametrize("name", ["clinics/more.py", "data.bin", "clinics/__pycache__/task.pyc"])
def test_a_file_that_was_added_is_another_app(clinics, installed, name):
    path = installed / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    with pytest.raises(AppNotReviewed):
        check_app(Policy(apps=(review(clinics).hash,)), client_app(installed))


def test_an_app_outside_of_any_project_is_refused(tmp_path):
    with pytest.raises(AppNotReviewed, match=r"in no folder with a pyproject.toml"):
        check_app(Policy(apps=("ab" * 32,)), str(tmp_path / "app.py"))


@pytest.mark.usefixtures("impatient")
def test_a_site_refuses_everything_of_an_app_that_it_has_not_reviewed(tiny: Tiny, monkeypatch):
    # The app of `tiny` is in this repository, all of whose files would be read.
    monkeypatch.setattr(reviewed_apps, "files_in", lambda folder: {"app.py": b""})
    for name in tiny.names:
        (tiny.folder / name).mkdir(parents=True)
        (tiny.folder / name / "policy.toml").write_text(f'apps = ["{"ab" * 32}"]')
    with pytest.raises(FederationError, match=r"that were not taken in: .*AppNotReviewed"):
        tiny.share(tiny.grid())
    assert not (tiny.folder / "a" / "store.sqlite3").exists()


def test_a_review_shows_what_an_app_may_do(clinics, tmp_path):
    found = review(clinics)
    assert found.attaches
    assert {(h.kind, h.is_coded) for h in found.handlers} >= {("train", True)}
    assert "fedcommons" in found.imports
    assert [place for place in found.look_at if "node config" in place]
    folder = tmp_path / "clinics"
    shutil.copytree(clinics, folder)
    path = folder / "clinics" / "client_app.py"
    evil = (
        "\n\n@app.evaluate()\ndef spy(message, context):\n    import os\n    open('/etc/passwd')\n"
    )
    path.write_text(path.read_text() + evil)
    worse = review(folder)
    assert worse.hash != found.hash
    (spy,) = [handler for handler in worse.handlers if handler.name.endswith("spy")]
    assert (spy.kind, spy.leaves) == ("evaluate", "whatever it returns")
    more = "\n".join(set(worse.look_at) - set(found.look_at))
    assert "import os" in more
    assert "open(...)" in more


@pytest.mark.parametrize("text", ["def", "\x00", "(" * 5000], ids=["half", "zero", "deep"])
def test_what_cannot_be_read_is_said(clinics, tmp_path, text):
    folder = tmp_path / "clinics"
    shutil.copytree(clinics, folder)
    (folder / "clinics" / "task.py").write_text(text)
    with pytest.raises(FederationError, match=r"clinics/task.py of the app cannot be read as Pyth"):
        review(folder)


def test_a_folder_that_is_no_app_is_said(tmp_path):
    with pytest.raises(FederationError, match="must be the folder of a Flower app"):
        review(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(FederationError, match="cannot be packed as a Flower app"):
        review(tmp_path)
