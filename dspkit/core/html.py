"""HTML tables for reports and notebooks, and values as readable text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files as package_files
from typing import TYPE_CHECKING, Any

from .errors import ArgumentError, visible

if TYPE_CHECKING:
    import pandas as pd
    from jinja2 import Environment


MOST_ROWS = 200  # rows of a table; longer ones are for programs
MOST_LETTERS = 40  # letters of a table cell that is not laid out as long text


def packaged(name: str) -> str:
    """Return the text of a file that is part of dspkit, by its path in the package.

    Examples
    --------
    >>> "class=\\"facts\\"" in packaged("core/assets/tables.html")
    True
    """
    return package_files("dspkit").joinpath(name).read_text("utf-8")


@cache
def templates() -> Environment:
    """Return the environment of the report templates, which escape all inserted values."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(packaged),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # markup is ours, or sanitised
    )


def html_table(frame: pd.DataFrame, title: str = "", *, left: bool = False) -> str:
    """Return the first rows of a data frame as HTML, escaped.

    Parameters
    ----------
    frame : pandas.DataFrame
        The data; an index other than 0, 1, 2 ... becomes columns.
    title : str
        Title for screen readers.
    left : bool
        Whether to left-align text cell by cell, which notebooks need and report pages do not.

    Examples
    --------
    >>> import pandas as pd
    >>> "<td data-label=\\"name\\">a &amp; b</td>" in html_table(pd.DataFrame({"name": ["a & b"]}))
    True
    """
    if not hasattr(frame, "columns") or not hasattr(frame, "itertuples"):
        raise ArgumentError(
            f"a table that is a {type(frame).__name__}", expected="a pandas DataFrame", fix="pass pandas.DataFrame(...)"
        )
    import pandas as pd
    from markupsafe import Markup

    shown = frame.head(MOST_ROWS)
    if not isinstance(frame.index, pd.RangeIndex):
        shown = shown.reset_index()
    if not len(shown):
        return '<p class="note">No rows.</p>'
    numbers = [pd.api.types.is_numeric_dtype(t) and not pd.api.types.is_bool_dtype(t) for t in shown.dtypes]
    labels = [", ".join(filter(None, map(str, c))) if isinstance(c, tuple) else str(c) for c in shown.columns]
    columns = [{"label": label, "number": number} for label, number in zip(labels, numbers, strict=True)]
    rows = [
        [_cell(words(value), column) for value, column in zip(row, columns, strict=True)]
        for row in shown.astype(object).where(shown.notna(), "").itertuples(index=False, name=None)
    ]
    stacked = any(cell["kind"] == "long" for row in rows for cell in row)
    label = f"Table: {title}" if title else "Table"
    made = _parts().table(label, columns, rows, stacked, left)
    if len(frame) > MOST_ROWS:
        made += Markup('<p class="note">The first {} of {} rows.</p>').format(MOST_ROWS, f"{len(frame):,}")
    return str(made)


def facts(rows: Iterable[tuple[str, str]], *, left: bool = False) -> str:
    """Return names and values as a table without a header, escaped.

    Examples
    --------
    >>> facts([("seed", "1")])
    '<table class="facts"><tbody><tr><th scope="row">seed</th><td>1</td></tr></tbody></table>'
    """
    return str(_parts().facts(list(rows), left))


def scroll(label: str) -> str:
    """Return the opening tag of a box in which a wide table scrolls, also by keyboard.

    Examples
    --------
    >>> scroll("Table")
    '<div class="scroll" tabindex="0" role="region" aria-label="Table">'
    """
    return str(_parts().scroll(label))


def _parts() -> Any:
    return templates().get_template("core/assets/tables.html").module


def _cell(text: str, column: Mapping[str, Any]) -> dict[str, str]:
    """Return a cell with its column's name, which is its heading on narrow screens."""
    kind = "number" if column["number"] else "long" if len(text) > MOST_LETTERS else ""
    return {"text": text, "kind": kind, "label": column["label"]}


def words(value: Any) -> str:
    """Return a value as readable text: four digits, "" for NaN, nested values in one line.

    Examples
    --------
    >>> words({"rate": 12345.678, "full": True})
    'rate 12,346, full yes'
    """
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
