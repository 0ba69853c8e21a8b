import numpy as np
import pytest
from hypothesis import given

from fedcommons import sharing
from fedcommons.errors import ArgumentError, PlacementFileError
from fedcommons.placement import Placement
from tests.reference import loops
from tests.scenarios import federation, federations


def make(case: dict) -> tuple[Placement, np.ndarray]:
    case = dict(case)
    d = case.pop("copies")
    labels, owner, shareable = federation(**case)
    rng = np.random.default_rng(case["seed"])
    return sharing.randomised(owner, shareable, d, n_clients=case["n_clients"], rng=rng), labels


@given(case=federations())
def test_views_agree_with_plain_loops(case):
    placement, labels = make(case)
    H = loops.dense_holdings(placement)
    N, M = H.shape
    owned = np.array([(placement.owner == i).sum() for i in range(N)])
    assert np.array_equal(placement.holdings().toarray(), H)
    assert placement.holdings().has_sorted_indices
    assert np.array_equal(placement.holder_counts, H.sum(axis=0))
    assert np.array_equal(placement.held_counts(), H.sum(axis=1))
    assert np.array_equal(placement.owned_counts(), owned)
    assert np.array_equal(placement.received(), H.sum(axis=1) - owned)
    assert np.array_equal(placement.overlap(), H @ H.T)
    assert placement.n_copies == H.sum() - M
    for i in range(N):
        assert np.array_equal(placement.held_by(i), np.flatnonzero(H[i]))
        assert placement.sent()[i] == (H[:, placement.owner == i].sum() - owned[i])
    for j in range(M):
        assert np.array_equal(placement.holders(j), np.flatnonzero(H[:, j]))
    Y = loops.label_proportions(placement, labels, case["n_classes"])
    got = placement.label_proportions(labels, n_classes=case["n_classes"])
    assert np.allclose(got, Y, equal_nan=True)


@given(case=federations())
def test_relabelling_clients_permutes_every_statistic(case):
    placement, labels = make(case)
    new_name = np.random.default_rng(1).permutation(placement.n_clients)
    renamed = placement.relabel(new_name)
    for statistic in ("sent", "received", "held_counts", "owned_counts", "extra_compute"):
        before, after = getattr(placement, statistic)(), getattr(renamed, statistic)()
        assert np.array_equal(after[new_name], before)
    assert np.array_equal(renamed.overlap()[np.ix_(new_name, new_name)], placement.overlap())
    L = case["n_classes"]
    assert np.array_equal(
        renamed.label_counts(labels, n_classes=L)[new_name],
        placement.label_counts(labels, n_classes=L),
    )
    assert np.array_equal(renamed.holder_counts, placement.holder_counts)
    assert renamed.relabel(np.argsort(new_name)) == placement


def test_extra_compute_of_those_who_own_or_receive_nothing():
    placement = Placement.from_copies([0, 0], [0, 1, 1], [1, 1, 2], n_clients=4)
    assert placement.extra_compute().tolist() == [0, np.inf, np.inf, 0]
    placement = Placement.from_copies([0, 0, 1, 1], [0, 1, 2], [1, 1, 0], n_clients=2)
    assert placement.extra_compute().tolist() == [0.5, 1.0]


def test_nobody_can_change_a_placement_afterwards():
    given = [np.array([0], np.int32), np.array([0, 1]), np.array([1], np.int32)]
    placements = [
        Placement(*given, 3),
        sharing.randomised([0, 1], [True, True], 1, n_clients=3, rng=np.random.default_rng(0)),
    ]
    for placement in placements:
        for name in ("owner", "indptr", "recipients"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(placement, name)[0] = 1
    for array in given:
        array[0] = 2
    assert placements[0].owner.tolist() == [0]
    assert placements[0].indptr.tolist() == [0, 1]
    assert placements[0].recipients.tolist() == [1]


def test_holdings_count_without_overflow():
    owner = np.zeros(400, int)
    everything = sharing.randomised(
        owner, np.ones(400, bool), 1, n_clients=2, rng=np.random.default_rng(0)
    )
    held = everything.holdings()
    assert (held @ held.T).toarray().tolist() == [[400, 400], [400, 400]]
    assert (held @ np.ones(400, np.int8)).tolist() == [400, 400]


def test_equality_and_repr():
    placement = Placement.from_copies([0, 1], [0], [1], n_clients=2)
    assert placement == Placement.from_copies([0, 1], [0], [1], n_clients=2)
    assert placement != sharing.none([0, 1], n_clients=2)
    assert placement != "something else"
    assert repr(placement) == "Placement(2 examples at 2 clients, 1 copies)"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(owner=[0, 3], indptr=[0, 0, 0], recipients=[], n_clients=2), "owner must be in"),
        (dict(owner=[0, 1], indptr=[0, 1, 1], recipients=[0], n_clients=2), "contain the owner"),
        (dict(owner=[0, 1], indptr=[0, 1, 1], recipients=[2], n_clients=2), "recipients must be"),
        (dict(owner=[0, 1], indptr=[0, 1, 1], recipients=[-1], n_clients=2), "recipients must be"),
        (dict(owner=[0], indptr=[0, 2], recipients=[2, 1], n_clients=3), "sorted and differ"),
        (dict(owner=[0], indptr=[0, 2], recipients=[1, 1], n_clients=3), "sorted and differ"),
        (dict(owner=[0, 1], indptr=[0, 1], recipients=[1], n_clients=2), "indptr must have 3"),
        (dict(owner=[0, 1], indptr=[0, 2, 1], recipients=[1], n_clients=2), "indptr must rise"),
        (dict(owner=[0, 1], indptr=[0, 1, 2], recipients=[1], n_clients=2), "indptr must rise"),
        (dict(owner=[0], indptr=[0, 0], recipients=[], n_clients=0), "n_clients must be"),
    ],
)
def test_unlawful_placements_are_refused(fields, message):
    with pytest.raises(ArgumentError, match=message):
        Placement(**{k: np.array(v, int) if isinstance(v, list) else v for k, v in fields.items()})


def test_the_offending_example_is_named():
    with pytest.raises(ArgumentError, match="client 1 for its own example 2"):
        Placement(np.array([0, 0, 1]), np.array([0, 1, 1, 3]), np.array([2, 0, 1]), 3)
    with pytest.raises(ArgumentError, match=r"got \[2, 2\] for example 1"):
        Placement.from_copies([0, 0, 0], [0, 1, 1], [1, 2, 2], n_clients=3)


class TestFile:
    @pytest.fixture
    def placement(self):
        owner = np.repeat(np.arange(5), 20)
        rng = np.random.default_rng(0)
        return sharing.randomised(owner, owner < 3, 2, n_clients=5, rng=rng)

    def test_round_trip(self, placement, tmp_path):
        placement.save(tmp_path / "p.placement")
        assert Placement.load(tmp_path / "p.placement") == placement
        assert [f.name for f in tmp_path.iterdir()] == ["p.placement"]

    def test_every_truncation_and_bit_flip_is_detected_or_harmless(self, placement, tmp_path):
        path = tmp_path / "p"
        placement.save(path)
        content = path.read_bytes()
        rng = np.random.default_rng(0)
        for cut in range(0, len(content), 97):
            path.write_bytes(content[:cut])
            with pytest.raises(PlacementFileError, match=str(path)):
                Placement.load(path)
        refused = 0
        for _ in range(300):
            damaged = bytearray(content)
            damaged[rng.integers(len(content))] ^= 1 << rng.integers(8)
            path.write_bytes(damaged)
            try:
                assert Placement.load(path) == placement  # a flip in unused zip metadata
            except PlacementFileError:
                refused += 1
        assert refused > 200

    def test_foreign_files_are_refused(self, tmp_path):
        (tmp_path / "text").write_text("hello")
        (tmp_path / "empty").write_bytes(b"")
        (tmp_path / "folder").mkdir()
        np.save(tmp_path / "array.npy", np.zeros(3))
        np.savez(tmp_path / "other.npz", x=np.zeros(3))
        np.savez(tmp_path / "foreign.npz", format="somebody.else", version=1)
        for name, message in (
            ("absent", "does not exist"),
            ("text", "cannot be read"),
            ("empty", "cannot be read"),
            ("folder", "cannot be read"),
            ("array.npy", "got a single array"),
            ("other.npz", "must hold the arrays"),
            ("foreign.npz", "must be a placement, got 'somebody.else'"),
        ):
            with pytest.raises(PlacementFileError, match=message):
                Placement.load(tmp_path / name)

    def test_unlawful_content_and_other_versions_are_refused(self, tmp_path):
        fields = dict(owner=[0, 9], indptr=[0, 0, 0], recipients=[], n_clients=2)
        name = np.array("fedcommons.placement")
        with (tmp_path / "bad").open("wb") as file:
            np.savez(file, format=name, version=1, **fields)
        with pytest.raises(PlacementFileError, match="owner must be in"):
            Placement.load(tmp_path / "bad")
        with (tmp_path / "new").open("wb") as file:
            np.savez(file, format=name, version=2, **fields)
        with pytest.raises(PlacementFileError, match="must have placement version 1, got 2"):
            Placement.load(tmp_path / "new")

    def test_unwritable_target_is_an_error_and_leaves_nothing(self, placement, tmp_path):
        with pytest.raises(PlacementFileError, match="cannot be written"):
            placement.save(tmp_path / "absent" / "p")
        assert list(tmp_path.iterdir()) == []
