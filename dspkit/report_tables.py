"""The tables of a report's page, and values in words."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from .errors import DspkitError

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 200  # of a table: more is to be read by a program
MOST_LETTERS = 40  # of a table cell that still counts as a word or two


def table(frame: pd.DataFrame, title: str = "") -> str:
    """The first rows of a data frame as HTML."""
    if not hasattr(frame, "columns") or not hasattr(frame, "itertuples"):
        raise DspkitError(
            f"a table that is a {type(frame).__name__}", expected="a pandas DataFrame", fix="pass pandas.DataFrame(...)"
        )
    import pandas as pd

    shown = frame.head(MOST_ROWS)
    if not isinstance(frame.index, pd.RangeIndex):
        shown = shown.reset_index()
    if not len(shown):
        return '<p class="note">No rows.</p>'
    numbers = [pd.api.types.is_numeric_dtype(t) and not pd.api.types.is_bool_dtype(t) for t in shown.dtypes]
    kinds = [' class="number"' if number else "" for number in numbers]
    labels = [", ".join(filter(None, map(str, c))) if isinstance(c, tuple) else str(c) for c in shown.columns]
    head = "".join(f'<th scope="col"{k}>{escape(c)}</th>' for c, k in zip(labels, kinds, strict=True))
    rows = "".join(
        f"<tr>{''.join(_cell(words(v), k, c) for v, k, c in zip(row, kinds, labels, strict=True))}</tr>"
        for row in shown.astype(object).where(shown.notna(), "").itertuples(index=False, name=None)
    )
    more = ""
    if len(frame) > MOST_ROWS:
        more = f'<p class="note">The first {MOST_ROWS} of {len(frame):,} rows.</p>'
    stacked = ' class="stacked"' if 'class="long"' in rows else ""
    inner = f"<table{stacked}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"{scroll(f'Table: {title}' if title else 'Table')}{inner}</div>{more}"


def scroll(label: str) -> str:
    """The start of a box that a wide table scrolls in, with the keyboard too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">'


def _cell(text: str, kind: str, label: str) -> str:
    """`label` heads the cell where a phone has no room for columns."""
    kind = kind or (' class="long"' if len(text) > MOST_LETTERS else "")
    return f'<td{kind} data-label="{escape(label)}">{escape(text)}</td>'


def words(value: Any) -> str:
    """A value as a reader wants it: four digits, no "nan", nested things in a line."""
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        value = value.tolist()
    if value is None or (not isinstance(value, (list, tuple, Mapping)) and value != value):  # NaN, NaT
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {words(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(words, value))
    if isinstance(value, float):
        return f"{value:,.0f}" if 9999.5 <= abs(value) < 1e15 else f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
