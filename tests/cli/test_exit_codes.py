from fedcommons import errors
from fedcommons.cli.exit_codes import EXIT_CODES, UNEXPECTED, exit_code


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
