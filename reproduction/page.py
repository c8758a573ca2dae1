"""The page docs/reproduction.md, made of sections with prose and results.

A section is a folder with a module `section` that defines `SECTION`, its prose `text.md` and its results
`results.json`. `{{name}}` in the prose is a table or a number that `SECTION.show` computes from the results. The page
is therefore a function of the committed files; `python -m reproduction` recomputes the results.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dspkit.core import FileError, NotFoundError, files

from .classes import classify

if TYPE_CHECKING:
    import pandas as pd


HERE = Path(__file__).parent
SECTIONS = (  # in their order on the page
    "case_studies", "autrascale", "stela", "fission", "elysium", "predictors", "elastic_storm", "hierarchical", "edrp",
    "odp", "placement", "odrp", "distributed_storm", "worked", "live",
)  # fmt: skip
PAGE = HERE.parent / "docs" / "reproduction.md"
Found = Mapping[str, Any]  # results of each part, as plain JSON


class Row(NamedTuple):
    """A headline: the printed value, ours, the reason for the difference, and what ours is based on (`classes`)."""

    paper: str
    what: str
    printed: float | str
    ours: float | str
    why: str = ""
    unit: str = ""
    basis: str = ""

    @property
    def kind(self) -> str:
        """The class of the number, as in the ledger."""
        return classify(self.printed, self.ours, self.basis)

    @property
    def ratio(self) -> float | None:
        """Ours over printed."""
        if isinstance(self.printed, str) or isinstance(self.ours, str) or not self.printed:
            return None
        return self.ours / self.printed


@dataclass(frozen=True)
class SectionContent:
    """The content of a section: the values of its placeholders, and its headlines."""

    values: Mapping[str, str]
    rows: Sequence[Row] = ()


@dataclass(frozen=True)
class PageSection:
    """A section: parts that compute plain data, and `show`, which turns the data into text.

    `long` parts are only computed with `--long`. `basis` says what numbers of ours are based on, if they are not plain
    runs (`classes.BASES`): by a regular expression for `part[filters]#column`, the first one that is found.
    """

    parts: Mapping[str, Callable[[], Any]]
    show: Callable[[Found], SectionContent]
    long: frozenset[str] = field(default_factory=frozenset)
    basis: Mapping[str, str] = field(default_factory=dict)

    def found(self) -> dict[str, Any]:
        """Compute and return all parts."""
        return {name: plain(make()) for name, make in self.parts.items()}


def names() -> tuple[str, ...]:
    """Return all sections, in their order on the page."""
    return SECTIONS


def section(name: str) -> PageSection:
    """Return a section by name."""
    if name not in names():
        raise NotFoundError(f"section {name!r}", expected=f"one of {', '.join(names())}", fix="choose one")
    made = import_module(f"{__package__}.{name}.section").SECTION
    assert isinstance(made, PageSection)
    return made


def prose(name: str) -> str:
    """Return the prose of a section."""
    return (HERE / name / "text.md").read_text(encoding="utf-8")


def results(name: str) -> dict[str, Any]:
    """Return the results of a section: {part: {"data": ..., "seconds": ...}}."""
    parts = section(name).parts
    path = HERE / name / "results.json"
    if not path.is_file():
        raise FileError(f"no {path.name}", expected="results", fix=f"python -m reproduction --only {name}")
    told = json.loads(path.read_text(encoding="utf-8"))
    if missing := set(parts) - set(told):
        raise FileError(
            f"{path.name} without {', '.join(sorted(missing))}", expected="all parts", fix=f"reproduce --only {name}"
        )
    return dict(told)


@lru_cache(maxsize=64)
def shown(name: str) -> SectionContent:
    """Return the content of a section from its results."""
    told = results(name)
    return section(name).show({part: told[part]["data"] for part in section(name).parts})


def render(name: str) -> str:
    """Return the text of a section; raise an error if placeholders and values do not match."""
    values, text = shown(name).values, prose(name)
    asked = set(re.findall(r"\{\{([^{}]+)\}\}", text))
    if asked ^ set(values):
        raise FileError(
            f"prose of {name!r} with {sorted(asked - set(values))} unknown, {sorted(set(values) - asked)} unused",
            expected="the placeholders that show() fills",
            fix="correct text.md or show()",
        )
    return re.sub(r"\{\{([^{}]+)\}\}", lambda m: values[m[1]], text).strip()


def rows(only: Iterable[str] = ()) -> list[Row]:
    """Return the headlines of these sections, or of all."""
    return [row for name in only or names() for row in shown(name).rows]


def headlines() -> pd.DataFrame:
    """Return all headlines as a data frame: paper, what, printed, ours, ratio, class, unit, why."""
    import pandas as pd

    return pd.DataFrame([{**row._asdict(), "ratio": row.ratio, "class": row.kind} for row in rows()])[
        ["paper", "what", "printed", "ours", "ratio", "class", "unit", "why"]
    ]


def table(some: Iterable[Row]) -> str:
    """Return headlines as a Markdown table."""
    cells = [
        (r.paper, r.what, _number(r.printed) + r.unit, _number(r.ours) + r.unit,
         "" if r.ratio is None else _ratio(r.ratio), r.kind, r.why)
        for r in some
    ]  # fmt: skip
    return grid(("paper", "what", "printed", "ours", "ratio", "class", "why it differs"), cells)


def page() -> str:
    """Return the whole page."""
    head = (HERE / "head.md").read_text(encoding="utf-8").strip()
    seconds = sum(part["seconds"] for name in names() for part in results(name).values())
    if "{{claims}}" in head:
        from . import ledger  # it reads this module

        head = head.replace("{{claims}}", ledger.claims())
    head = head.replace("{{headlines}}", table(rows())).replace("{{minutes}}", f"{seconds / 60:.0f}")
    return "\n\n".join((head, *map(render, names()))) + "\n"


def typed_in(tree: ast.AST) -> list[ast.Constant]:
    """Return the literals that are passed as ours to a `Row`; "not modelled" is none."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Row":
            ours = (
                node.args[3] if len(node.args) > 3 else next((k.value for k in node.keywords if k.arg == "ours"), None)
            )
            if isinstance(ours, ast.Constant) and ours.value != "not modelled":
                found.append(ours)
    return found


def literals() -> list[str]:
    """Return each literal of ours in the headlines of a section, by file and line; there should be none."""
    return [
        f"{name}/section.py:{node.lineno}"
        for name in names()
        for node in typed_in(ast.parse((HERE / name / "section.py").read_text(encoding="utf-8")))
    ]


def write(path: Path = PAGE) -> Path:
    """Write the page and return its path."""
    shown.cache_clear()
    if not path.parent.is_dir():
        raise FileError(f"no folder {path.parent}", expected="a checkout of dspkit", fix="run it there")
    from . import ledger

    ledger.forget()
    return files.write_atomically(path, lambda p: p.write_text(page(), encoding="utf-8"), overwrite=True)


def grid(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    out = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    out += [f"| {' | '.join(map(str, line))} |" for line in lines]
    return "\n".join(out)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a data frame as plain data, which `frame` reads back."""
    return list(plain(frame.reset_index(drop=True).to_dict("records")))


def frame(data: Sequence[Mapping[str, Any]]) -> Any:
    """Return plain data as a data frame; Any, as the reader knows the types of its cells."""
    import pandas as pd

    return pd.DataFrame(list(data))


def plain(value: Any) -> Any:
    """Return the value as plain JSON types; numbers have six digits, invalid ones become None."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def _ratio(x: float) -> str:
    return f"{x:.2f}" if abs(x) >= 0.1 else f"{x:.1g}" if abs(x) >= 1e-4 else f"1 / {1 / x:,.0f}" if x else "0"


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
