"""A site's policy: what its file may say, and what holds without one."""

from dataclasses import fields
from pathlib import Path

import pytest

import fedcommons.federate
from fedcommons.errors import ArgumentError
from fedcommons.federate.site.policy import SIMULATED, Policy, read_policy


def test_without_a_file_the_safe_rules_hold(tmp_path):
    assert read_policy(tmp_path) == Policy()
    assert read_policy(tmp_path, SIMULATED) is SIMULATED
    assert (Policy().min_examples, Policy().min_sites, Policy().exchanges) == (32, 3, 1)
    assert not Policy().share_with_all


def test_a_file_says_what_differs_also_in_a_simulation(tmp_path):
    (tmp_path / "policy.toml").write_text("min-examples = 5\nshare-with-all = true\n")
    expected = Policy(min_examples=5, share_with_all=True)
    assert read_policy(tmp_path) == read_policy(tmp_path, SIMULATED) == expected
    assert expected.listed["min-examples"] == 5
    assert Policy.of(expected.listed) == expected


def test_every_rule_is_enforced_somewhere():
    """A rule that nothing looks at would be a promise that nobody keeps."""
    root = Path(fedcommons.federate.__file__).parent
    code = "".join(p.read_text() for p in root.rglob("*.py") if p.name != "policy.py")
    assert [f.name for f in fields(Policy) if f"policy.{f.name}" not in code] == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("min-exmaples = 1", "'min-exmaples' is no rule of a policy: min-examples, "),
        ("min_examples = 1", "'min_examples' is no rule of a policy"),
        ("min-examples = 0", "min-examples must be an integer .* got 0"),
        ("min-examples = true", "min-examples must be"),
        ("min-sites = 1", "min-sites must be"),
        ("max-copies = 1.5", "max-copies must be"),
        ("share-with-all = 1", "share-with-all must be"),
        ('apps = ["abc"]', "apps must be a list of hashes of 64 digits"),
        ("apps = 3", "apps must be a list"),
        ("[min-examples]\nx = 1", "min-examples must be"),
        ("min-examples =", "cannot be read"),
        ("\x00", "cannot be read"),
    ],
)
def test_what_is_no_policy_is_refused_with_the_files_name(tmp_path, content, said):
    (tmp_path / "policy.toml").write_text(content)
    with pytest.raises(ArgumentError, match=f"policy .*policy.toml.*{said}"):
        read_policy(tmp_path)
