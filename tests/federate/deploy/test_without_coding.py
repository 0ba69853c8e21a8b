"""What coding bought is found by making the same rounds again, with who answered in them."""

from fedcommons.federate.apps import local_run
from fedcommons.federate.apps.new_app import write_app
from fedcommons.federate.deploy import without_coding
from fedcommons.federate.server.checkpoints import read_checkpoint


def test_the_rounds_are_made_again_with_who_answered_in_them(tmp_path):
    app, state = tmp_path / "digits", tmp_path / "state"
    write_app(app)
    config = {"state-dir": str(state), "num-rounds": 3, "fraction-evaluate": 0.0, "seed": 3}
    local_run.run_app(app, 5, {**config, "rehearse-stragglers": 0.5})
    (path,) = state.glob("*/*/checkpoint.npz")
    notes = read_checkpoint(path).history
    found = without_coding.bought(app, path.parent, notes, {**config, "sites": 5})
    assert found.missing == sum(not site.answered for note in notes for site in note.sites) > 0
    assert found.of == 15
    assert len({found.coded, found.averaged, found.complete}) == 3
    assert all(0.3 < part < 1 for part in (found.coded, found.averaged, found.complete))
    assert f"coding reached {found.coded:.3f}, averaging who answered" in found.words
