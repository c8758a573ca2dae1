"""Policies are found by being there; two of one name are both named."""

import sys
from pathlib import Path

import pytest

from dspkit import policies
from dspkit.policies import _template

TEXT = Path(_template.__file__).read_text()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A second place to look for policies; what is imported from it is forgotten."""
    monkeypatch.setattr(policies, "__path__", [*policies.__path__, str(tmp_path)])
    yield tmp_path
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(f"{policies.__name__}.{path.stem}", None)
        if hasattr(policies, path.stem):
            delattr(policies, path.stem)


def test_a_second_file_of_the_same_name_is_left_out_by_name(folder):
    (folder / "zz_mine.py").write_text(TEXT.replace('"template"', '"ds2"'))
    with pytest.warns(
        UserWarning, match=r"policies/zz_mine\.py is left out: DS2 of policies/ds2\.py is named 'ds2' too"
    ):
        found = policies.available()
    assert found["ds2"].__module__ == "dspkit.policies.ds2"


def test_two_of_one_name_in_one_file_are_told_apart(folder):
    (folder / "zz_both.py").write_text(
        TEXT.replace('"template"', '"both"') + "\n\n@dataclass(frozen=True)\nclass Again(Template):\n    pass\n"
    )
    with pytest.warns(
        UserWarning, match=r"Again of policies/zz_both\.py is left out: Template of policies/zz_both\.py"
    ):
        assert policies.available()["both"].__name__ == "Template"
