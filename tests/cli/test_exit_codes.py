import re
from pathlib import Path

import pytest

from fedcommons import errors
from fedcommons.cli import app, commands
from fedcommons.cli.exit_codes import (
    EXIT_CODES,
    HELP,
    INTERRUPTED,
    OUT_OF_MEMORY,
    UNEXPECTED,
    exit_code,
)

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
    codes = {0, UNEXPECTED, *EXIT_CODES.values(), OUT_OF_MEMORY, INTERRUPTED}
    assert {int(code) for code in re.findall(r"\d+", HELP)} == codes
    rows = re.findall(r"^\| (\d+) \|", DOCUMENT.read_text(), flags=re.MULTILINE)
    assert sorted(map(int, rows)) == sorted(codes)


@pytest.mark.parametrize("text", ["Unable to allocate 8.00 TiB", ""])
def test_too_little_memory_ends_in_a_message(monkeypatch, capsys, text):
    def command():
        raise MemoryError(*filter(None, [text]))

    monkeypatch.setattr(app.signal, "signal", lambda *_: None)
    monkeypatch.setattr(commands, "app", command)
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == OUT_OF_MEMORY
    assert capsys.readouterr().err == f"fedcommons: out of memory: {text or 'nothing is left'}\n"
