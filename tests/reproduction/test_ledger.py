"""The ledger: its classes follow from the numbers, its rows from their sources, and its page from both."""

import ast
import re
from pathlib import Path

import pytest

from dspkit.core import DspkitError
from reproduction import ledger, page
from reproduction.classes import CLASSES, classify, digits, near

ROOT = Path(__file__).parents[2]


def test_the_page_and_the_counts_are_what_the_generator_makes():
    """If this fails: `make reproduce ARGS=--render`."""
    assert ledger.PAGE.read_text(encoding="utf-8") == ledger.text()
    readme = ledger.README.read_text(encoding="utf-8")
    assert readme == ledger.readme(readme)
    assert ledger.summary() in readme


def test_every_row_has_a_class_and_what_it_needs():
    """A number of ours has a command; a number that is not made again has a reason of its own."""
    rows = ledger.everything()
    assert len(rows) > 600
    assert {row.kind for row in rows} <= set(CLASSES)
    for row in rows:
        assert row.printed, row
        assert bool(row.command) == (row.ours is not None), row
        assert row.why or row.kind in ledger.AGREES, row
        assert (row.kind == "not modelled") == (row.ours is None), row
    names = [(row.paper, row.place, row.what) for row in rows]
    assert len(set(names)) == len(names), {n for n in names if names.count(n) > 1}


def test_keys_read_results_and_contain_no_number_of_ours():
    """An expression has paths, and of numbers only units and the printed values that it is relative to."""
    for paper in ledger.PAPERS:
        for line in ledger.source(paper):
            rest = ledger.PATH.sub("", line["ours"])
            numbers = {float(x) for x in re.findall(r"\d+\.?\d*", rest)}
            units = {1.0, 2.0, 100.0, 1000.0, 600.0, 12.0, 0.001, 0.6, 0.7, 0.8, 0.9}
            assert numbers <= units, line
            assert bool(line["ours"]) == bool(ledger.PATH.search(line["ours"])), line


def test_each_abstract_has_its_claims_on_the_page():
    rows = [row for row in ledger.everything() if row.abstract]
    assert {row.paper for row in rows} == set(ledger.PAPERS.values())
    told = page.page()
    for row in rows:
        assert f"| {row.what} |" in told


def test_a_fitted_plant_marks_its_rows():
    """A row that reads a part which its section calls fitted, chosen or an input is so called, missed or ordered."""
    found = dict.fromkeys(("fitted", "chosen after seeing", "input"), 0)
    for row in ledger.everything():
        told = ledger.basis(row.key)
        if told in found:
            assert row.kind in (told, "missed", "ordering only"), row
            found[told] += row.kind == told
        elif row.kind in found:
            raise AssertionError(row)
    assert all(found.values())


@pytest.mark.parametrize(
    ("printed", "ours", "basis", "kind"),
    [
        ("0.9096", 0.90961, "computed", "exact"), ("0.9096", 0.9, "computed", "re-made"), ("65", 61.7, "", "re-made"),
        ("65", 61.7, "fitted", "fitted"), ("65", 40, "fitted", "missed"), ("65", None, "", "not modelled"),
        ("<= 4", 4, "", "re-made"), ("<= 4", 5, "", "missed"), ("< 0", 0.0, "", "missed"),
        ("80..90", 97, "", "re-made"),
        ("80..90", 105, "", "missed"), ("yes", "yes", "", "re-made"), ("3, 4", "3, 4", "computed", "exact"),
        ("3, 4", "4, 3", "", "missed"), ("10", 14, "input", "input"), ("0", 0.4, "", "re-made"),
        ("0", 0.6, "", "missed"),
        ("1,234", 1250, "", "re-made"), ("-31", 32, "", "missed"), ("about 3", 3.1, "", "re-made"),
    ],
)  # fmt: skip
def test_classes(printed, ours, basis, kind):
    assert classify(printed, ours, basis) == kind


def test_ordering_needs_all_rows_of_its_group():
    lines = [{"printed": p, "order": "a"} for p in ("1", "2", "3")]
    assert ledger._orders_kept(lines, [10.0, 20.0, 30.0]) == {"a"}
    assert ledger._orders_kept(lines, [10.0, 30.0, 20.0]) == set()
    assert ledger._orders_kept(lines, [10.0, 10.0, 30.0]) == set()
    assert ledger._orders_kept(lines[:1], [10.0]) == set()
    assert classify("10", 30, ordered=True) == "ordering only"
    assert classify("10", 30, "input", ordered=True) == "input"


def test_numbers_of_papers_are_read():
    assert digits("1,223.5") == (1223.5, None, "", 0.05)
    assert digits("> 10") == (10.0, None, ">", 0.5)
    assert digits("-12.6") == (-12.6, None, "", 0.05)
    assert digits("curves") is None
    assert near("-12.6", -13.5)
    assert not near("-12.6", 12.6)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("{autrascale:throughput[job=query5]#nothing}", "one row that has the column"),
        ("{autrascale:throughput#rounds}", "4 rows"), ("{autrascale:nothing[job=query5]#rounds}", "name one of its"),
        ("{autrascale:throughput[job=query5]#rounds} ** 2", "paths, numbers"), ("v7", "paths, numbers"),
        ("{autrascale:throughput[job=query5]#rounds} +", "an expression"), ("__import__('os')", "paths, numbers"),
    ],
)  # fmt: skip
def test_wrong_keys_are_refused(key, said):
    with pytest.raises(DspkitError, match=re.escape(said)):
        ledger.value(key)


def test_headlines_are_computed():
    """No section writes a value of ours as a literal into a headline."""
    assert page.literals() == []


def test_a_literal_is_found():
    tree = ast.parse('Row("P", "w", 1.0, "as many", "why")\nRow("P", "w", 1.0, x, "why")\nRow("P", "w", 2.0, ours=3.0)')
    assert [n.lineno for n in page.typed_in(tree)] == [1, 3]


def test_the_columns_of_edrp_are_those_of_its_program():
    """Counted without building it, and of the program itself."""
    from dataclasses import replace

    from dspkit.placement import Downtime, Limits, Weights
    from dspkit.placement.metrics import limited_objective
    from dspkit.placement.replication.options import options
    from dspkit.placement.replication.solve import elastic_program
    from reproduction.worked.study import _taxi, elastic_columns

    problem = replace(_taxi(6, 2), downtime=Downtime())
    running = problem.running({o: "n0" if k < 3 else "n1" for k, o in enumerate(problem.application.operators)})
    limits = Limits(response_s=0.175, cost=30.0, downtime_s=7.5)
    objective = limited_objective(Weights(0.3, cost=0.3, downtime=0.4), limits)
    found = options(problem)
    program = elastic_program(found, problem.downtime_model, running, objective, limits, thesis=True)
    assert elastic_columns(found) == len(program.cost)
