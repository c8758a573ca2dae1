"""Errors of ours: what they say, what of Python's they are, and that they travel between processes."""

import copy
import pickle
import sys

import pytest

from dspkit.core import ArgumentError, BackendError, DspkitError, FileError, KnobError, NotFoundError, errors
from dspkit.loaders import LoaderError
from dspkit.spark import CheckpointError, FunctionError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DspkitError)]
PARTS = ("this", "that", "do so")


@pytest.mark.parametrize("kind", [*KINDS, LoaderError, FunctionError, CheckpointError])
def test_errors_keep_their_kind_and_parts_between_processes(kind):
    error = kind("this", expected="that", fix="do so")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is kind
        assert (twin.got, twin.expected, twin.fix) == PARTS
        assert str(twin) == str(error)
        assert twin.args == error.args


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_says_what_it_got_what_it_expected_and_what_to_do(kind):
    """Also those that are Python's own, whose texts are put together in other ways."""
    assert str(kind("this", expected="that", fix="do so")) == "got this; expected that; do so"


@pytest.mark.parametrize(
    ("kind", "own"),
    [(ArgumentError, ValueError), (NotFoundError, LookupError), (FileError, OSError), (BackendError, RuntimeError)],
)
def test_a_handler_for_pythons_kind_catches_ours(kind, own):
    with pytest.raises(own):
        raise kind("this", expected="that", fix="do so")
    others = {ValueError, LookupError, OSError, RuntimeError} - {own}
    assert not any(issubclass(kind, other) for other in others)


def test_a_knob_is_an_argument_and_the_base_is_none_of_pythons_kinds():
    assert issubclass(KnobError, ArgumentError)
    assert DspkitError.__bases__ == (Exception,)


def test_a_file_error_has_a_readable_traceback_and_no_number_of_the_system(capsys):
    """OSError would take two arguments for the system's number and text."""
    error = FileError("no file x", expected="a saved run", fix="check the path")
    assert error.errno is None
    sys.excepthook(FileError, error, None)
    assert "FileError: got no file x; expected a saved run; check the path" in capsys.readouterr().err
