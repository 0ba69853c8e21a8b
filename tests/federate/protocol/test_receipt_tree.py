"""Every leaf has a path to the root, and nothing else has."""

import hashlib

import pytest

from fedcommons.federate.protocol.receipt_tree import leads_to, path_of, root_of


def leaves(n: int) -> list[bytes]:
    return [hashlib.sha256(bytes([k])).digest() for k in range(n)]


@pytest.mark.parametrize("n", range(1, 18))
def test_each_leaf_leads_to_the_root_from_its_own_place_alone(n):
    all_of_them = leaves(n)
    root = root_of(all_of_them)
    for place in range(n):
        path = path_of(all_of_them, place)
        assert len(path) <= (n - 1).bit_length()
        assert leads_to(root, all_of_them[place], place, n, path)
        for other in set(range(n)) - {place}:
            assert not leads_to(root, all_of_them[place], other, n, path)
            assert not leads_to(root, all_of_them[other], place, n, path)
        assert not leads_to(root, all_of_them[place], place, n, [*path, bytes(32)])
        if path:
            assert not leads_to(root, all_of_them[place], place, n, path[1:])
            assert not leads_to(root, all_of_them[place], place, n, [bytes(32), *path[1:]])


def test_other_leaves_have_another_root():
    assert len({root_of(leaves(n)) for n in range(1, 18)}) == 17
