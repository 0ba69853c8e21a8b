import re
from pathlib import Path

from fedcommons import errors
from fedcommons.cli.exit_codes import EXIT_CODES, HELP, INTERRUPTED, UNEXPECTED, exit_code

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "reproduction.md"


def test_every_error_has_an_exit_code_of_its_own():
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.FedcommonsError)
    ]
    concrete = [kind for kind in kinds if kind is not errors.FedcommonsError]
    assert {exit_code(kind("x")) for kind in concrete} == set(EXIT_CODES.values())
    assert len(set(EXIT_CODES.values())) == len(concrete)
    assert exit_code(errors.FedcommonsError("x")) == UNEXPECTED


def test_the_help_and_the_document_list_every_exit_code():
    codes = {0, UNEXPECTED, *EXIT_CODES.values(), INTERRUPTED}
    assert {int(code) for code in re.findall(r"\d+", HELP)} == codes
    rows = re.findall(r"^\| (\d+) \|", DOCUMENT.read_text(), flags=re.MULTILINE)
    assert sorted(map(int, rows)) == sorted(codes)
