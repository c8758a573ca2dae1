"""A registry finds what is built in, what other packages offer, and what was registered."""

import sys

import pytest

from dspkit.core import ArgumentError, NotFoundError
from dspkit.core.registry import Registry


def _wrong(thing):
    return None if callable(thing) else "cannot be called"


def one():
    return 1


def two():
    return 2


@pytest.fixture
def registry():
    return Registry("dspkit.test_things", "thing", lambda: {"one": one}, _wrong)


def _package(folder, monkeypatch, entries, code):
    """A package that is installed as far as Python can tell: a module and its metadata on the path."""
    (folder / "somebody_else.py").write_text(code)
    info = folder / "somebody_else-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody-else\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dspkit.test_things]\n" + entries)
    monkeypatch.syspath_prepend(folder)


@pytest.fixture(autouse=True)
def forget():
    yield
    sys.modules.pop("somebody_else", None)


def test_what_is_built_in_and_what_was_registered_is_found_by_name(registry):
    assert registry.register(two) is two
    assert registry.available() == {"one": one, "two": two}
    assert registry.get("two") is two


def test_registering_again_replaces_so_that_a_cell_may_run_again(registry):
    def other():
        return 3

    registry.register(two)
    registry.register(other, "two")
    assert registry.get("two") is other


def test_what_is_no_such_thing_is_not_registered(registry):
    with pytest.raises(ArgumentError, match="got 7, which cannot be called; expected a thing"):
        registry.register(7)
    assert registry.available() == {"one": one}


def test_the_nearest_name_is_told(registry):
    with pytest.raises(NotFoundError, match=r"got thing 'onne'; expected one of one; did you mean 'one'\?"):
        registry.get("onne")
    with pytest.raises(NotFoundError, match=r"see dspkit.test_things.available\(\)"):
        registry.get(None)


def test_other_packages_offer_theirs_by_an_entry_point(registry, tmp_path, monkeypatch):
    _package(tmp_path, monkeypatch, "three = somebody_else:three\n", "def three():\n    return 3\n")
    assert registry.get("three")() == 3


@pytest.mark.parametrize(
    ("entry", "code", "wrong"),
    [
        ("bad = somebody_else:gone", "x = 1", "AttributeError"),
        ("bad = somebody_else:x", "import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing"),
        ("bad = somebody_else:x", "x = 1", "cannot be called"),
    ],
)
def test_a_broken_offer_is_left_out_by_name_and_does_no_harm(registry, tmp_path, monkeypatch, entry, code, wrong):
    _package(tmp_path, monkeypatch, entry, code)
    with pytest.warns(UserWarning, match=f"entry point {entry} of somebody-else is left out: {wrong}"):
        assert registry.available() == {"one": one}


def test_of_two_of_one_name_the_first_is_kept_and_both_are_named(registry):
    registry.register(two, "one")
    with pytest.warns(UserWarning, match=r"two \(registered\) is left out: one \(built in\) is named 'one', too"):
        assert registry.available() == {"one": one}
