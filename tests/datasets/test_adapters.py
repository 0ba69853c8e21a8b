"""Data as other libraries have them."""

from datetime import date

import numpy as np
import pytest

from fedcommons import datasets
from fedcommons.errors import ArgumentError, DataError

N = 24
RNG = np.random.default_rng(0)
A, B = RNG.random(N), RNG.random(N)
LABELS = np.arange(N) % 3
SITE = [f"s{k % 4}" for k in range(N)]


@pytest.fixture(scope="module")
def hf():
    return pytest.importorskip("datasets", reason="needs fedcommons[datasets]")


@pytest.fixture
def table(hf):
    content = {"a": A.tolist(), "b": B.tolist(), "label": LABELS.tolist(), "site": SITE}
    found = hf.Dataset.from_dict(content)
    return found.cast_column("label", hf.ClassLabel(names=["x", "y", "z"]))


def test_a_table_of_hugging_face(hf, table):
    splits = hf.DatasetDict({"train": table, "test": table.select(range(5))})
    found = datasets.from_huggingface(splits, site="site")
    assert np.array_equal(found.x_train, np.column_stack([A, B]))
    assert np.array_equal(found.y_test, LABELS[:5])
    assert found.sites == ("s0", "s1", "s2", "s3")
    assert found.site_train.tolist() == [k % 4 for k in range(N)]
    assert (found.columns, found.encodings["label"]["values"]) == (("a", "b"), ["x", "y", "z"])
    with pytest.raises(DataError, match="must have the column 'c', got"):
        datasets.from_huggingface(table, inputs=["c"])


def test_words_and_gaps_of_hugging_face_are_read_as_those_of_a_table(hf, tmp_path):
    content = {
        "age": [None if k == 3 else 40.0 + k for k in range(N)],
        "sex": [["f", "m"][k % 2] for k in range(N)],
        "stage": [k % 3 for k in range(N)],
        "said": [["sick", "well"][k % 2] for k in range(N)],
        "site": SITE,
    }
    made = hf.Dataset.from_dict(content).cast_column(
        "stage", hf.ClassLabel(names=["I", "II", "III"])
    )
    how = dict(label="said", missing="mean", test_part=0.25)
    found = datasets.from_huggingface(made, site="site", **how)
    made.to_pandas().replace({"stage": dict(enumerate(["I", "II", "III"]))}).to_csv(
        tmp_path / "x.csv", index=False
    )
    same = datasets.load(tmp_path / "x.csv", site_column="site", **how)
    for array in ("x_train", "y_train", "x_test", "y_test", "site_train", "site_test"):
        assert np.array_equal(getattr(found, array), getattr(same, array)), array
    assert (found.columns, found.encodings) == (same.columns, same.encodings)
    assert found.columns == ("age", "sex=f", "sex=m", "stage=I", "stage=II", "stage=III")
    parts = [made.filter(lambda row, s=s: row["site"] == s) for s in ("s2", "s0", "s1", "s3")]
    of_parts = datasets.from_partitions(
        parts, made, label="said", inputs=["age", "sex"], missing="mean", names=["c", "a", "b", "d"]
    )
    assert of_parts.sites == ("c", "a", "b", "d")
    assert of_parts.site_train.tolist() == [k for k in range(4) for _ in range(6)]
    assert (len(of_parts.y_test), of_parts.site_test) == (N, None)
    with pytest.raises(DataError, match=r"huggingface: column 'age' must have no missing values"):
        datasets.from_huggingface(made, label="said")
    with pytest.raises(DataError, match=r"'day' must hold numbers or words, got date"):
        datasets.from_huggingface(made.add_column("day", [date(2020, 1, 1)] * N), label="said")
    with pytest.raises(ArgumentError, match="site_column must be left out here, got 'site'"):
        datasets.from_huggingface(made, label="said", site_column="site")


def test_images_of_hugging_face(hf):
    images = RNG.integers(0, 256, (N, 4, 4), dtype=np.uint8)
    features = hf.Features({"image": hf.Image(), "label": hf.Value("int64")})
    made = hf.Dataset.from_dict({"image": list(images), "label": LABELS.tolist()}, features)
    found = datasets.from_huggingface(made)
    assert np.array_equal(found.x_train, images)
    assert found.x_train.dtype == np.uint8


def test_partitioners_of_flower(table, tmp_path):
    partitioners = pytest.importorskip(
        "flwr_datasets.partitioner", reason="needs fedcommons[datasets]"
    )
    by_site = partitioners.NaturalIdPartitioner(partition_by="site")
    by_site.dataset = table
    parts = [by_site.load_partition(k) for k in range(by_site.num_partitions)]
    names = [part["site"][0] for part in parts]
    found = datasets.from_partitions(parts, table, inputs=["a", "b"], names=names)
    assert dict(zip(found.x_train[:, 0], found.site_train, strict=True)) == {
        a: names.index(s) for a, s in zip(A, SITE, strict=True)
    }
    assert found.site_test is None
    datasets.save(found, tmp_path / "x.npz")
    assert datasets.load(tmp_path / "x.npz").site_test is None
    both = datasets.from_partitions(parts, parts, inputs=["a", "b"])
    assert np.array_equal(both.site_test, both.site_train)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it leaves files open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_federated_dataset_of_flower_on_files_here(hf, table, tmp_path, monkeypatch):
    monkeypatch.setattr(hf.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    flwr_datasets = pytest.importorskip("flwr_datasets", reason="needs fedcommons[datasets]")
    from flwr_datasets.partitioner import IidPartitioner

    files = tmp_path / "files"
    files.mkdir()
    for split in ("train", "test"):
        table.to_csv(files / f"{split}.csv")
    federated = flwr_datasets.FederatedDataset(
        dataset=str(files), partitioners={"train": IidPartitioner(num_partitions=3)}, shuffle=False
    )
    parts = [federated.load_partition(k) for k in range(3)]
    found = datasets.from_partitions(parts, federated.load_split("test"), inputs=["a", "b"])
    assert np.bincount(found.site_train).tolist() == [8, 8, 8]
    assert np.allclose(np.sort(found.x_train[:, 0]), np.sort(A))
    assert np.allclose(found.x_test[:, 1], B)


def test_torch():
    torch = pytest.importorskip("torch")
    x = torch.as_tensor(RNG.random((N, 2, 2)), dtype=torch.float32)
    made = torch.utils.data.TensorDataset(x, torch.as_tensor(LABELS))
    found = datasets.from_torch(made, torch.utils.data.Subset(made, [3, 1]))
    assert np.array_equal(found.x_train, x.numpy())
    assert found.y_test.tolist() == [0, 1]
    mappings = [{"img": image, "label": label} for image, label in made]
    assert np.array_equal(datasets.from_torch(mappings).x_train, found.x_train)
    with pytest.raises(DataError, match="must have a length and items"):
        datasets.from_torch([1, 2])


class Columns(dict):
    """What an adapter asks of a Hugging Face dataset."""

    @property
    def column_names(self):
        return list(self)

    def __len__(self):
        return len(self["label"])


def test_what_cannot_be_sites_or_examples_is_refused():
    one = Columns(a=[1.0, 2.0], label=[0, 1])
    with pytest.raises(ArgumentError, match="parts must be at least two"):
        datasets.from_partitions([one])
    with pytest.raises(DataError, match="part 1 must have examples, got none"):
        datasets.from_partitions([one, Columns(a=[], label=[])])
    with pytest.raises(ArgumentError, match="names must be 2 different ones"):
        datasets.from_partitions([one, one], names=["x", "x"])
    with pytest.raises(DataError, match="column 'a' must be of one shape"):
        datasets.from_partitions([one, Columns(a=[[1.0], [1.0, 2.0]], label=[0, 1])])
