"""docs/reproduction.md from prose and results: what a section is, and how the page is put together.

A section is a module of `sections/` with a `SECTION`, and its prose `text/NN_module.md`, where NN is its place on the
page. `{{name}}` in the prose is a table or a number that `SECTION.show` makes of the results, which lie in
`results/module.json`. So the page follows from what is committed; `python -m dspkit.reproduce` makes results again.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import files
from ..errors import FileError, NotFoundError

if TYPE_CHECKING:
    import pandas as pd

HERE = Path(__file__).parent
TEXT, RESULTS = HERE / "text", HERE / "results"
PAGE = HERE.parents[1] / "docs" / "reproduction.md"
Found = Mapping[str, Any]  # of each part what it found, as plain JSON


class Row(NamedTuple):
    """A headline: what a paper prints, what we get, and why they differ. Numbers have a ratio, words have none."""

    paper: str
    what: str
    printed: float | str
    ours: float | str
    why: str = ""
    unit: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over printed."""
        if isinstance(self.printed, str) or isinstance(self.ours, str) or not self.printed:
            return None
        return self.ours / self.printed


@dataclass(frozen=True)
class Shown:
    """What a section puts on the page: the values of its placeholders, and its headlines."""

    values: Mapping[str, str]
    rows: Sequence[Row] = ()


@dataclass(frozen=True)
class Section:
    """Parts take their time and give plain data; `show` makes text of it at once. `long` parts need `--long`."""

    parts: Mapping[str, Callable[[], Any]]
    show: Callable[[Found], Shown]
    long: frozenset[str] = field(default_factory=frozenset)

    def found(self) -> dict[str, Any]:
        """All parts, made here and now."""
        return {name: plain(make()) for name, make in self.parts.items()}


def names() -> tuple[str, ...]:
    """All sections, in their order on the page."""
    found = [re.fullmatch(r"\d+_(\w+)", path.stem) for path in sorted(TEXT.glob("*.md"))]
    return tuple(match[1] for match in found if match)


def section(name: str) -> Section:
    if name not in names():
        raise NotFoundError(f"section {name!r}", expected=f"one of {', '.join(names())}", fix="choose one")
    made = import_module(f"{__package__}.sections.{name}").SECTION
    assert isinstance(made, Section)
    return made


def prose(name: str) -> str:
    (path,) = TEXT.glob(f"*_{name}.md")
    return path.read_text(encoding="utf-8")


def results(name: str) -> dict[str, Any]:
    """What is kept of a section: {part: {"data": ..., "seconds": ...}}."""
    parts = section(name).parts
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        raise FileError(f"no {path.name}", expected="results", fix=f"python -m dspkit.reproduce --only {name}")
    told = json.loads(path.read_text(encoding="utf-8"))
    if missing := set(parts) - set(told):
        raise FileError(
            f"{path.name} without {', '.join(sorted(missing))}", expected="all parts", fix=f"reproduce --only {name}"
        )
    return dict(told)


@lru_cache(maxsize=64)
def shown(name: str) -> Shown:
    """A section's text from its kept results."""
    told = results(name)
    return section(name).show({part: told[part]["data"] for part in section(name).parts})


def render(name: str) -> str:
    """A section as it stands on the page. Prose and values fit: no placeholder without a value, no value unused."""
    values, text = shown(name).values, prose(name)
    asked = set(re.findall(r"\{\{([^{}]+)\}\}", text))
    if asked ^ set(values):
        raise FileError(
            f"prose of {name!r} with {sorted(asked - set(values))} unknown, {sorted(set(values) - asked)} unused",
            expected="the placeholders that show() fills",
            fix="mend text/ or show()",
        )
    return re.sub(r"\{\{([^{}]+)\}\}", lambda m: values[m[1]], text).strip()


def rows(only: Iterable[str] = ()) -> list[Row]:
    """The headlines of these sections, or of all."""
    return [row for name in only or names() for row in shown(name).rows]


def headlines() -> pd.DataFrame:
    """All headlines as a frame: paper, what, printed, ours, ratio, why, unit."""
    import pandas as pd

    return pd.DataFrame([{**row._asdict(), "ratio": row.ratio} for row in rows()])[
        ["paper", "what", "printed", "ours", "ratio", "unit", "why"]
    ]


def table(some: Iterable[Row]) -> str:
    """Headlines as a Markdown table."""
    cells = [
        (r.paper, r.what, _number(r.printed) + r.unit, _number(r.ours) + r.unit,
         "" if r.ratio is None else _ratio(r.ratio), r.why)
        for r in some
    ]  # fmt: skip
    return grid(("paper", "what", "printed", "ours", "ratio", "why it differs"), cells)


def page() -> str:
    """The whole page."""
    head = (TEXT / "head.md").read_text(encoding="utf-8").strip()
    seconds = sum(part["seconds"] for name in names() for part in results(name).values())
    head = head.replace("{{headlines}}", table(rows())).replace("{{minutes}}", f"{seconds / 60:.0f}")
    return "\n\n".join((head, *map(render, names()))) + "\n"


def write(path: Path = PAGE) -> Path:
    shown.cache_clear()
    if not path.parent.is_dir():
        raise FileError(f"no folder {path.parent}", expected="a checkout of dspkit", fix="run it there")
    return files.write(path, lambda p: p.write_text(page(), encoding="utf-8"), overwrite=True)


def grid(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    out = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    out += [f"| {' | '.join(map(str, line))} |" for line in lines]
    return "\n".join(out)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame as plain data; what `frame` reads back."""
    return list(plain(frame.reset_index(drop=True).to_dict("records")))


def frame(data: Sequence[Mapping[str, Any]]) -> Any:
    """Plain data as a frame again; Any, as what a cell holds is for its reader to know."""
    import pandas as pd

    return pd.DataFrame(list(data))


def plain(value: Any) -> Any:
    """Only what JSON knows; numbers to six digits, what is none as None."""
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
