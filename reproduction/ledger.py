"""The ledger, docs/ledger.md: every printed number of the papers' evaluations beside ours, with its class.

`reproduction/ledger/<paper>.csv` has one row per printed number: place, what, printed, unit, ours, order, why. `ours`
is an expression over the committed results, as in `100 * {fission:table 2[run=App 1, 10 min]#elastic ours}`:

    {section:part > key[column=value; column=value]#column|aggregate}

The class of a row (`CLASSES`) is computed from both numbers, and from what the section says about the part
(`PageSection.basis`), so that a fitted plant marks its rows. Rows of one `order` keep the printed order if that of ours
is the same. `why` is the reason of the row alone; paths in it become numbers.
"""

from __future__ import annotations

import ast
import csv
import json
import operator
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

from dspkit.core import ArgumentError, DspkitError, FileError, files

from . import page
from .classes import CLASSES, classify, digits

if TYPE_CHECKING:
    import pandas as pd


HERE = page.HERE / "ledger"
PAGE = page.PAGE.with_name("ledger.md")
TIMES = re.compile(r"#(speed_up|seconds|optimum_s)\b")  # columns with times of solvers, or ratios of them
README = page.PAGE.parents[1] / "README.md"
PAPERS = {
    "autrascale": "AuTraScale", "fission": "Self-adaptive graph with fission", "stela": "Stela", "elysium": "ELYSIUM",
    "thesis": "Nardelli's thesis",
}  # fmt: skip
AGREES = ("exact", "re-made")  # these need no reason
COLUMNS = ("place", "what", "printed", "unit", "ours", "order", "why")
PATH = re.compile(r"\{(\w+):([^\[\]{}#|]+)(?:\[([^\]]*)\])?(?:#([^|{}]+))?(?:\|(\w+))?\}")
OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
AGGREGATES: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "mean": fmean, "median": median, "min": min, "max": max, "sum": sum, "all": all, "count": len,
}  # fmt: skip


class LedgerRow(NamedTuple):
    """A printed number, ours, the class, and the command that makes ours."""

    paper: str
    place: str
    what: str
    printed: str
    unit: str
    ours: Any
    factor: float | None
    kind: str
    why: str
    command: str
    key: str

    @property
    def abstract(self) -> bool:
        """Return whether the abstract of the paper claims it."""
        return self.place.startswith("abstract")


Data = Mapping[str, Mapping[str, Any]]  # of each section its parts


def value(key: str, data: Data | None = None) -> Any:
    """Return the value of an expression over the committed results, or over `data`.

    Examples
    --------
    >>> value("{autrascale:throughput[job=query5]#rounds} + 1")
    4
    """
    found: list[Any] = []

    def take(match: re.Match[str]) -> str:
        found.append(_at(*match.groups(), key=key, data=data))
        return f"v{len(found) - 1}"

    try:
        tree = ast.parse(PATH.sub(take, key), mode="eval").body
    except SyntaxError as error:
        raise ArgumentError(f"{key!r}", expected="an expression over {section:part...}", fix="correct it") from error
    return _computed(tree, found, key)


def _computed(node: ast.expr, found: Sequence[Any], key: str) -> Any:
    if isinstance(node, ast.Name) and re.fullmatch(r"v\d+", node.id) and int(node.id[1:]) < len(found):
        return found[int(node.id[1:])]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_computed(node.operand, found, key)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](_computed(node.left, found, key), _computed(node.right, found, key))
    raise ArgumentError(f"{key!r}", expected="paths, numbers, + - * /", fix="correct it")


def remake(key: str) -> Any:
    """Compute the parts of an expression again and return its value; the committed results are unchanged.

    Examples
    --------
    >>> round(remake("{worked:values[name=slots saved, up]#value}"), 2)
    36.71
    """
    made: dict[str, dict[str, Any]] = {}
    for section, part, *_ in PATH.findall(key):
        name, parts = part.split(" > ")[0].strip(), made.setdefault(section, {})
        if name not in parts:
            parts[name] = page.plain(page.section(section).parts[name]())
    return value(key, made)


def expected_s(key: str) -> float:
    """Return the seconds that the parts of an expression took the last time."""
    parts = {(section, part.split(" > ")[0].strip()) for section, part, *_ in PATH.findall(key)}
    return sum(float(page.results(section)[part]["seconds"]) for section, part in parts)


def _at(
    section: str, part: str, filters: str | None, column: str | None, aggregate: str | None, *, key: str,
    data: Data | None,
) -> Any:  # fmt: skip
    name, *inside = (p.strip() for p in part.split(" > "))
    found = (_data(section) if data is None else data.get(section, {})).get(name)
    return _in(found, inside, filters, column, aggregate, section=section, key=key)


def _in(
    data: Any, inside: Sequence[str], filters: str | None, column: str | None, aggregate: str | None, *, section: str,
    key: str,
) -> Any:  # fmt: skip
    for step in inside:
        data = data.get(step) if isinstance(data, Mapping) else None
    if data is None:
        raise ArgumentError(f"{key!r}", expected=f"a part of {section}", fix="name one of its results.json")
    if column is None and filters is None:
        return data
    if isinstance(data, Mapping):
        data = [data]
    asked = dict(part.split("=", 1) for part in (filters or "").split("; ") if part)
    rows = [r for r in data if all(_same(r.get(k.strip()), v) for k, v in asked.items())]
    if not rows or (aggregate is None and len(rows) > 1) or (column is not None and column not in rows[0]):
        raise ArgumentError(f"{key!r}: {len(rows)} rows", expected="one row that has the column", fix="correct it")
    if column is None:
        return len(rows) if aggregate == "count" else rows[0]
    if aggregate is None:
        return rows[0][column]
    return AGGREGATES[aggregate]([r[column] for r in rows if r[column] is not None])


def _same(cell: Any, asked: str) -> bool:
    if isinstance(cell, bool) or cell is None or isinstance(cell, str):
        return str(cell) == asked
    if isinstance(cell, int | float):
        try:
            return abs(float(asked) - cell) < 1e-9
        except ValueError:
            return False
    return ", ".join(map(str, cell)) == asked


@lru_cache(maxsize=64)
def _data(section: str) -> dict[str, Any]:
    return {part: told["data"] for part, told in page.results(section).items()}


def basis(key: str) -> str:
    """Return what an expression is based on: times of solvers, or the first that the sections say about its parts."""
    if TIMES.search(key):
        return "timing"
    for section, part, filters, column, _ in PATH.findall(key):
        name = f"{part.strip()}[{filters}]#{column}"
        for pattern, told in page.section(section).basis.items():
            if re.search(pattern, name):
                return told
    return ""


def command(key: str) -> str:
    """Return the command that computes the parts of an expression."""
    found = PATH.findall(key)
    sections = dict.fromkeys(section for section, *_ in found)
    parts = dict.fromkeys(part.split(" > ")[0].strip() for _, part, *_ in found)
    return f'python -m reproduction --only {",".join(sections)} --parts "{";".join(parts)}"' if found else ""


@lru_cache(maxsize=8)
def source(paper: str) -> tuple[dict[str, str], ...]:
    """Return the lines of a paper's file."""
    path = HERE / f"{paper}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise FileError(f"{path.name} with {reader.fieldnames}", expected=", ".join(COLUMNS), fix="correct it")
        return tuple(reader)


@lru_cache(maxsize=8)
def rows(paper: str) -> tuple[LedgerRow, ...]:
    """Return the rows of a paper."""
    lines = source(paper)
    values = [value(line["ours"]) if line["ours"] else None for line in lines]
    kept = _orders_kept(lines, values)
    made = []
    for line, ours in zip(lines, values, strict=True):
        ours = _plain(ours, line["printed"])
        kind = classify(line["printed"], ours, basis(line["ours"]), ordered=line["order"] in kept)
        printed = digits(line["printed"])
        factor = None
        if printed and printed[0] and isinstance(ours, int | float):
            factor = ours / printed[0]
        made.append(
            LedgerRow(PAPERS[paper], line["place"], line["what"], line["printed"], line["unit"], ours, factor, kind,
                      "" if kind in AGREES else _reason(line["why"]), command(line["ours"]), line["ours"])
        )  # fmt: skip
    return tuple(made)


def _reason(why: str) -> str:
    """Return a reason with the values of its paths."""
    return PATH.sub(lambda match: _number(float(value(match[0]))), why)


def _plain(ours: Any, printed: str) -> Any:
    if isinstance(ours, bool):
        return "yes" if ours else "no"
    if isinstance(ours, list | tuple):
        return ", ".join(map(str, ours))
    return ours


def _orders_kept(lines: Sequence[Mapping[str, str]], values: Sequence[Any]) -> set[str]:
    """Return the orders in which ours is strictly greater wherever the printed number is."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for line, ours in zip(lines, values, strict=True):
        if line["order"] and (printed := digits(line["printed"])) and isinstance(ours, int | float):
            groups.setdefault(line["order"], []).append((printed[0], float(ours)))
    return {
        name
        for name, pairs in groups.items()
        if len(pairs) > 1 and all(a[1] < b[1] for a in pairs for b in pairs if a[0] < b[0])
    }


def everything() -> list[LedgerRow]:
    """Return all rows of all papers."""
    return [row for paper in PAPERS for row in rows(paper)]


def frame() -> pd.DataFrame:
    """Return the ledger as a data frame."""
    import pandas as pd

    return pd.DataFrame([row._asdict() for row in everything()])


def share(some: Iterable[LedgerRow]) -> float:
    """Return the share of rows that are exact or re-made, of those that are not inputs."""
    counted = [row.kind for row in some if row.kind != "input"]
    return sum(kind in AGREES for kind in counted) / len(counted)


def counts(some: Iterable[LedgerRow]) -> dict[str, int]:
    """Return the number of rows of each class."""
    found = Counter(row.kind for row in some)
    return {kind: found[kind] for kind in CLASSES}


def summary() -> str:
    """Return the counts by paper and class as a Markdown table."""
    lines = []
    for paper, title in PAPERS.items():
        some = rows(paper)
        lines.append((title, len(some), *counts(some).values(), f"{100 * share(some):.0f} %"))
    whole = everything()
    lines.append(("**all**", len(whole), *counts(whole).values(), f"{100 * share(whole):.0f} %"))
    return page.grid(("paper", "printed numbers", *CLASSES, "exact or re-made"), lines)


def claims() -> str:
    """Return the claims of the five abstracts as a Markdown table."""
    return page.grid(
        ("paper", "claim of the abstract", "printed", "ours", "class", "why"),
        [
            (r.paper, r.what, r.printed + r.unit, shown(r), r.kind, r.why)
            for r in everything()
            if r.abstract
        ],
    )  # fmt: skip


def shown(row: LedgerRow) -> str:
    """Return ours as text, with about as many digits as are printed."""
    if row.ours is None:
        return ""
    return (row.ours if isinstance(row.ours, str) else _number(float(row.ours))) + row.unit


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.4g}"


def text() -> str:
    """Return the whole page."""
    made = [(HERE / "head.md").read_text(encoding="utf-8").strip().replace("{{summary}}", summary())]
    for paper, title in PAPERS.items():
        lines = [
            (r.place, r.what, r.printed + r.unit, shown(r), "" if r.factor is None else page._ratio(r.factor), r.kind,
             r.why, _told(r.key))
            for r in rows(paper)
        ]  # fmt: skip
        head = ("place", "what", "printed", "ours", "factor", "class", "why", "made by")
        made.append(f"## {title}\n\n{page.grid(head, lines)}")
    return "\n\n".join(made) + "\n"


def _told(key: str) -> str:
    found = PATH.findall(key)
    return "; ".join(dict.fromkeys(f"{section}: {part.split(' > ')[0].strip()}" for section, part, *_ in found))


def readme(old: str) -> str:
    """Return README with the counts between its markers."""
    start, end = "<!-- ledger: written by python -m reproduction --render -->", "<!-- /ledger -->"
    before, _, rest = old.partition(start)
    if end not in rest:
        raise FileError("README without the ledger's markers", expected=f"{start} ... {end}", fix="put them back")
    return f"{before}{start}\n{summary()}\n{end}{rest.partition(end)[2]}"


def forget() -> None:
    """Read the results and the sources again."""
    for cached in (_data, source, rows):
        cached.cache_clear()


def write() -> Path:
    """Write docs/ledger.md and the counts in README; return the path of the former."""
    forget()
    counted = readme(README.read_text(encoding="utf-8"))
    files.write_atomically(PAGE, lambda p: p.write_text(text(), encoding="utf-8"), overwrite=True)
    files.write_atomically(README, lambda p: p.write_text(counted, encoding="utf-8"), overwrite=True)
    return PAGE


def main() -> None:
    """Print the value of an expression, made again, as JSON: `python -m reproduction.ledger "{section:part...}"`."""
    if len(sys.argv) != 2:
        sys.exit(f"got {len(sys.argv) - 1} arguments; expected one expression; quote it")
    try:
        sys.stdout.write(json.dumps(page.plain(remake(sys.argv[1]))) + "\n")
    except DspkitError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
