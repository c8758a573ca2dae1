"""Honesty of docs/reproduction.md and docs/ledger.md: counts, not speeds."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from benchmarks import Claim

TESTS = Path(__file__).parents[1] / "tests"
REPEATED = (  # tests that an independent reading found to repeat what was searched or fitted, and no more
    "test_e9_availability_is_a_product_over_operators", "test_printed_facts_hold",
    "test_elastic_losses_are_near_the_printed_ones", "test_throughput_bases_are_the_papers_in_at_most_four_rounds",
    "test_it_uses_fewer_slots_than_drs_as_the_paper_counts_them",
)  # fmt: skip


def abstract_claims_on_the_page() -> Claim:
    """Share of the claims of the five abstracts that stand on the page, whatever came out."""
    from reproduction import ledger, page

    claims, told = [row for row in ledger.everything() if row.abstract], page.PAGE.read_text(encoding="utf-8")
    there = [row for row in claims if f"| {row.what} |" in told]
    return Claim(len(there) / len(claims), "", target=1.0, detail=Counter(row.kind for row in claims))


def rows_without_a_command() -> Claim:
    """Rows of the ledger with a number of ours that no command makes."""
    from reproduction import ledger

    rows = ledger.everything()
    bare = [row for row in rows if row.ours is not None and not row.command]
    return Claim(len(bare), "rows", target=0, better="lower", detail={"rows": len(rows)})


def literals_in_sections() -> Claim:
    """Headlines whose number of ours is typed into a section."""
    from reproduction import page

    found = page.literals()
    return Claim(len(found), "literals", target=0, better="lower", detail=dict.fromkeys(found, 1))


def tests_that_repeat_a_search() -> Claim:
    """Tests that only repeat a searched or fitted result, of those that an independent reading named."""
    names = {
        node.name
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    found = [name for name in REPEATED if name in names]
    return Claim(len(found), "tests", target=0, better="lower", detail=dict.fromkeys(found, 1))


def share_made_again() -> Claim:
    """Share of printed numbers that are exact or made again, of all but inputs; by paper in the detail."""
    from reproduction import ledger

    each = {title: round(ledger.share(ledger.rows(paper)), 3) for paper, title in ledger.PAPERS.items()}
    untimed = [row for row in ledger.everything() if "CPLEX" not in row.why and "speed-up" not in row.what]
    return Claim(ledger.share(ledger.everything()), "", target=0.7,
                 detail={**each, "without times against CPLEX": round(ledger.share(untimed), 3)})  # fmt: skip
