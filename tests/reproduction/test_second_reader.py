"""The second reading of the ledger: its script knows the documented API alone, and reads the rows that are drawn."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import second_reader
from benchmarks._source import FACES  # the packages whose names tests/tooling/api.txt lists


def test_it_imports_only_documented_names():
    tree = ast.parse(Path(second_reader.__file__).read_text(encoding="utf-8"))
    used = [
        (node.module or "", alias.name) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]  # fmt: skip
    ours = [(module, name) for module, name in used if module.startswith("dspkit")]
    assert len(ours) > 15
    for module, name in ours:
        assert module in FACES, module
        assert name in import_module(module).__all__ or f"{module}.{name}" in FACES, (module, name)
    (lot,) = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == "lot"]
    inside = {id(node) for node in ast.walk(lot)}
    for node in ast.walk(tree):  # the studies are read by the draw alone
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("reproduction"):
            assert id(node) in inside
    assert not any(isinstance(node, ast.Attribute) and node.attr.startswith("_") for node in ast.walk(tree))


def test_each_row_that_is_drawn_is_read_and_quick_ones_agree():
    rows = second_reader.lot()
    assert {(row.paper, row.place, row.what) for row in rows} == set(second_reader.READ), "write the rows drawn now"
    quick = [row for row in rows if row.place in ("tables II, III", "table 8.4", "table 6.4")]
    assert [same for _, _, same in second_reader.read(quick)] == [True] * 3
    wrong = quick[0]._replace(ours=1.05 * float(quick[0].ours))
    assert [same for _, _, same in second_reader.read([wrong])] == [False]


@pytest.mark.parametrize("seed", [1, 23])
def test_the_lot_is_a_draw(seed):
    """Another seed draws others; the same seed the same, in the same order."""
    first = [row.key for row in second_reader.lot(seed)]
    assert first == [row.key for row in second_reader.lot(seed)]
    assert first != [row.key for row in second_reader.lot(seed + 1)]
