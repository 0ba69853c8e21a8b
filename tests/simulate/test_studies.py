import pytest

from fedcommons.errors import ArgumentError, DataError, StudyError
from fedcommons.simulate import definition, studies
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.studies import paper

SMALL = """
name = "small"
clients = 4
class_size = 5
rounds = 3
learning_rate = 0.2
[[figure]]
name = "one"
kind = "curves"
partition = "dirichlet"
alpha = 0.5
p = [0.2, 0.6]
curves = [{ label = "IID", partition = "iid" }, { label = "shared", c = 0.5, d = 2 }]
"""


def load(tmp_path, text):
    (tmp_path / "study.toml").write_text(text)
    return studies.load(tmp_path / "study.toml")


def test_the_papers_study_is_the_papers_setup():
    study = paper()
    assert (study.clients, study.class_size, study.rounds) == (10, 30, 50)
    figures = {figure.name: figure for figure in study.figures}
    for name, partition in (("figure1", "dirichlet"), ("figure2", "single-class")):
        curves = {line.curve for line in figures[name].lines}
        assert len(curves) == 15
        for p in (0.3, 0.5, 0.7):
            alpha = 0.1 if partition == "dirichlet" else 0.0
            assert Curve("iid", 0.0, p) in curves
            assert Curve(partition, alpha, p) in curves
            assert {Curve(partition, alpha, p, c, 3) for c in (0.1, 0.2, 0.5)} <= curves
        assert {(c.learning_rate, c.decay) for c in curves} == {(0.1, 0.97)}
    assert {(line.curve.learning_rate, line.curve.decay) for line in figures["figure3"].lines} == {
        (0.01, 1.0)
    }


def test_lists_are_expanded_and_defaults_inherited(tmp_path):
    study = load(tmp_path, SMALL)
    assert [(line.label, line.curve) for line in study.figures[0].lines] == [
        ("IID", Curve("iid", 0.0, 0.2, learning_rate=0.2)),
        ("IID", Curve("iid", 0.0, 0.6, learning_rate=0.2)),
        ("shared", Curve("dirichlet", 0.5, 0.2, 0.5, 2, learning_rate=0.2)),
        ("shared", Curve("dirichlet", 0.5, 0.6, 0.5, 2, learning_rate=0.2)),
    ]


def test_a_study_survives_its_record(tmp_path):
    for study in (paper(), load(tmp_path, SMALL)):
        assert definition.from_dict(study.as_dict()) == study


def test_the_digest_is_of_what_the_numbers_depend_on(tmp_path):
    study = load(tmp_path, SMALL)
    same = load(tmp_path, SMALL.replace('name = "small"', 'name = "other"\nruns = 99'))
    assert study.digest == same.digest
    for old, new in (("rounds = 3", "rounds = 4"), ("c = 0.5", "c = 0.4"), ("0.2\n", "0.3\n")):
        assert load(tmp_path, SMALL.replace(old, new)).digest != study.digest


def test_data_files_are_found_beside_the_study_and_are_part_of_the_digest(tmp_path):
    text = SMALL.replace('name = "small"', 'name = "small"\ndataset = "mine.npz"')
    (tmp_path / "mine.npz").write_bytes(b"one")
    first = load(tmp_path, text)
    assert first.dataset == str(tmp_path / "mine.npz")
    (tmp_path / "mine.npz").write_bytes(b"two")
    assert load(tmp_path, text).digest != first.digest
    (tmp_path / "mine.npz").unlink()
    with pytest.raises(DataError, match=r"mine.npz does not exist"):
        load(tmp_path, text)


def test_other_data_stand_in_for_those_of_the_study(tmp_path):
    path, there = tmp_path / "study.toml", tmp_path / "there.npz"
    path.write_text(f'dataset = "absent.npz"\n{SMALL}')
    there.write_bytes(b"1")
    assert studies.load(path, data=str(there)).dataset == str(there)
    assert studies.load(path, data="mnist").digest == load(tmp_path, SMALL).digest
    with pytest.raises(ArgumentError, match="data must be a path, got ''"):
        studies.load(path, data="")


def test_figures_and_lines_can_be_chosen():
    study = paper()
    assert [f.name for f in study.only(["figure2"]).figures] == ["figure2"]
    assert {line.label for f in study.only_lines(["IID"]).figures for line in f.lines} == {"IID"}
    with pytest.raises(ArgumentError, match=r"figure must be one of figure1, .*, got 'figure9'"):
        study.only(["figure9"])
    with pytest.raises(ArgumentError, match=r"curves must be among .*; got 'nothing'"):
        study.only_lines(["nothing"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rounds = 3", "round = 3", "unknown key 'round' in the study; did you mean 'rounds'?"),
        ('kind = "curves"', 'knid = "curves"', "'knid' in [[figure]] 'one'; did you mean 'kind'?"),
        ("c = 0.5", "copies = 2", "'copies' in a curve of [[figure]] 'one'; did you mean 'd'?"),
        (
            "c = 0.5",
            "straggler_prob = 0.1",
            "'straggler_prob' in a curve of [[figure]] 'one'; did you mean 'p'?",
        ),
        ("c = 0.5", "C = 0.5", "unknown key 'C' in a curve of [[figure]] 'one'; did you mean 'c'?"),
        ("rounds = 3", "Rounds = 3", "unknown key 'Rounds' in the study; did you mean 'rounds'?"),
        ("rounds = 3", "rounds = 0", "rounds must be an integer >= 1, got 0"),
        ("rounds = 3", "rounds = 2.5", "rounds must be an integer >= 1, got 2.5"),
        ("clients = 4", "clients = 2", "d must be in {0, ..., 1} for 2 clients, got 2"),
        ("c = 0.5", "c = 1.5", "[[figure]] 'one': c must be in [0, 1], got 1.5"),
        ("d = 2", "d = -1", "[[figure]] 'one': d must be an integer >= 0, got -1"),
        ("0.6]", "1.0]", "[[figure]] 'one': p must be in [0, 1), got 1"),
        ("alpha = 0.5", "alpha = 0", "alpha must be > 0 and finite, got 0"),
        (
            "alpha = 0.5",
            "decay = 1.0",
            "alpha must be given for a partition with a concentration, such as dirichlet, got none",
        ),
        ("d = 2", "d = 2, assumed_p = 1.5", "assumed_p must be in [0, 1), got 1.5"),
        ('"dirichlet"', '"dirichlt"', "partition must be one of iid, single-class, dirichlet"),
        ('kind = "curves"', 'kind = "pie"', "kind must be one of curves, scalar-products"),
        ('kind = "curves"', "", "[[figure]] 'one' must have the key 'kind'"),
        ('label = "IID", ', "", "must have the key 'label'"),
        ('name = "small"', "", "the study must have the key 'name'"),
        (
            'name = "small"',
            'name = "small"\nengine = "fast"',
            "engine must be one of example-space",
        ),
        ("d = 2", 'd = 2, estimator = "mean"', "estimator must be one of coded_sum, memory"),
        ("d = 2", "d = 2, warm = true", "warm must go with an estimator that remembers"),
        ("[[figure]]", "[figure]", "figures must be written as [[figure]]"),
        ('name = "one"', 'name = "../one"', "name must be 1 to 100 letters, digits"),
        ('name = "one"', 'name = "/tmp/one"', "name must be 1 to 100 letters, digits"),
        ('name = "one"', 'name = ""', "name must be 1 to 100 letters, digits"),
        ('name = "one"', "name = 1", "name must be 1 to 100 letters, digits"),
        ("[0.2, 0.6]", "[]", "p must have at least one value, got an empty list"),
        ("c = 0.5", "c = true", "c must be a number, got True"),
        ("d = 2", "d = 2.0", "d must be an integer, got 2.0"),
        ("d = 2", 'd = 2, warm = "no"', "warm must be true or false, got 'no'"),
        ("c = 0.5", 'c = "half"', "c must be a number, got 'half'"),
        ("alpha = 0.5", "alpha = nan", "alpha must be > 0 and finite, got nan"),
        ('name = "small"', 'name = "a"\ndataset = 3', "dataset must be a name or a path, got 3"),
        ("rounds = 3", "rounds = ", "is not valid TOML"),
    ],
)
def test_mistakes_are_named(tmp_path, old, new, message):
    assert old in SMALL
    with pytest.raises(StudyError) as caught:
        load(tmp_path, SMALL.replace(old, new, 1))
    assert message in str(caught.value)
    assert "study.toml" in str(caught.value)


@pytest.mark.parametrize("curves", ["3", "[]", "[1]", '"all"'])
def test_curves_must_be_a_list_of_tables(tmp_path, curves):
    text = SMALL[: SMALL.index("curves = [")] + f"curves = {curves}\n"
    with pytest.raises(StudyError, match=r"curve.* must be a (list of )?table"):
        load(tmp_path, text)
    with pytest.raises(StudyError, match="figures must be written as"):
        load(tmp_path, 'name = "x"\nfigure = [1, 2]\n')


def test_two_figures_of_one_name_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(StudyError, match="figure names must differ, got 'one' twice"):
        load(tmp_path, SMALL + SMALL[SMALL.index("[[figure]]") :])
    with pytest.raises(StudyError, match=r"absent.toml cannot be read"):
        studies.load(tmp_path / "absent.toml")


def test_figures_that_need_the_theory_need_its_engine(tmp_path):
    text = SMALL.replace('"curves"', '"second-moment"', 1)
    load(tmp_path, text)
    with pytest.raises(StudyError, match="engine must be example-space for figures of the kinds"):
        load(tmp_path, text.replace('name = "small"', 'name = "small"\nengine = "plain"'))


@pytest.mark.parametrize("kind", ["second-moment", "scalar-products"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("code", "owner-corrected"),
        ("estimator", "memory"),
        ("estimator", "responder_average"),
        ("estimator", "wait_for_all"),
    ],
)
def test_the_theory_is_for_the_papers_code_and_estimator(tmp_path, kind, key, value):
    text = SMALL.replace('"curves"', f'"{kind}"', 1).replace("d = 2", f'd = 2, {key} = "{value}"')
    with pytest.raises(StudyError, match="the estimator of the theory, equal-split and coded_sum"):
        load(tmp_path, text)
