"""A heat map of a sweep: two sliders along the edges, what came of them as colour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import MetricError
from .base import Plot, axis, numbers, plot, si

if TYPE_CHECKING:
    import pandas as pd

UNITS = {"throughput": "records/s", "source_rate": "records/s", "lost": "records/s", "lag": "records"}
UNITS |= {"worst_lag": "records", "cores": "cores", "instances": "instances", "scale": "times the load"}


def heatmap(
    frame: pd.DataFrame, x: str, y: str, z: str, *, title: str = "", lower_is_better: bool | None = None
) -> Plot:
    """Column `z` of a sweep over the columns `x` and `y`, on a scale of logarithms where z spans more than 1:1000.

    The best point is marked; whether low or high is best follows from z, unless you say so. Rows that share x and y,
    as where a sweep has further axes, are averaged, and the sentence says so.
    """
    if len({x, y, z}) < 3:
        raise MetricError(
            f"x={x!r}, y={y!r}, z={z!r}", expected="three different columns", fix="name two axes and what to draw"
        )
    if missing := [name for name in (x, y, z) if name not in frame]:
        raise MetricError(
            f"column {missing[0]!r}", expected=f"one of {', '.join(map(str, frame.columns))}", fix="check the name"
        )
    import numpy as np

    frame = _numeric(frame, x, y, z)
    table = frame.pivot_table(index=y, columns=x, values=z)
    values = table.to_numpy(dtype=float)
    known = values[np.isfinite(values)]
    if not known.size:
        raise MetricError(f"{z!r} without a number", expected="something measured", fix="sweep over points that run")
    low = z not in ("throughput", "source_rate") if lower_is_better is None else lower_is_better
    row, column = np.unravel_index(np.nanargmin(values) if low else np.nanargmax(values), values.shape)
    across, up = np.asarray(table.columns, dtype=float).tolist(), np.asarray(table.index, dtype=float).tolist()
    at = across[int(column)], up[int(row)]
    positive = known[known > 0]
    logarithmic = positive.size == known.size and known.max() > 1000 * known.min()
    shown = np.log10(values) if logarithmic else values
    unit = "s" if z.endswith("_s") else UNITS.get(z, "")
    bar: dict[str, Any] = {"title": {"text": f"{_words(z)}{f' ({unit})' if unit else ''}", "side": "right"}}
    if logarithmic:
        ticks = np.arange(np.ceil(np.log10(known.min())), np.floor(np.log10(known.max())) + 1)
        bar |= {"tickvals": ticks.tolist(), "ticktext": [si(10.0**tick) for tick in ticks]}
    traces = [
        {
            "type": "heatmap",
            "x": across,
            "y": up,
            "z": [numbers(line) for line in shown.tolist()],
            "customdata": [numbers(line) for line in values.tolist()],
            "colorscale": "Cividis",
            "reversescale": not low,
            "colorbar": bar,
            "hovertemplate": f"{_words(x)} %{{x}}<br>{_words(y)} %{{y}}<br>{_words(z)} %{{customdata:.4g}} {unit}"
            "<extra></extra>",
        },
        {
            "type": "scatter",
            "x": [at[0]],
            "y": [at[1]],
            "mode": "markers",
            "marker": {"symbol": "star", "size": 15, "color": "white", "line": {"color": "black", "width": 1.5}},
            "name": "best",
            "showlegend": False,
            "hovertemplate": "best<extra></extra>",
        },
    ]
    layout = {"xaxis": axis(_named(x)), "yaxis": axis(_named(y))}
    most = int(frame.groupby([y, x])[z].count().max())
    mean = f", each point the mean of {most}" if most > 1 else ""
    said = (
        f"{_words(z).capitalize()} over {len(across)} value{'s' if len(across) > 1 else ''} of {_words(x)} and "
        f"{len(up)} of {_words(y)}{mean}: {si(known.min())} to {si(known.max())}{f' {unit}' if unit else ''}, "
        f"best (star) at {_words(x)} {si(at[0])}, {_words(y)} {si(at[1])}."
    )
    return plot(traces, layout, said, height=420, title=title)


def _numeric(frame: pd.DataFrame, x: str, y: str, z: str) -> pd.DataFrame:
    """These columns as numbers, finite along the axes; what is infinite at a point is a gap."""
    import numpy as np
    import pandas as pd

    columns = {}
    for name in (x, y, z):
        try:
            columns[name] = np.asarray(frame[name], dtype=float)
        except (TypeError, ValueError) as error:
            raise MetricError(
                f"column {name!r} of {frame[name].to_numpy().flat[0]!r}", expected="numbers", fix="draw another column"
            ) from error
        if columns[name].ndim != 1:
            raise MetricError(f"two columns {name!r}", expected="one of that name", fix="rename one of them")
        good = np.isfinite(columns[name])
        if name != z and not good.all():
            raise MetricError(f"{name!r} of {columns[name][~good][0]}", expected="finite numbers", fix="leave it out")
        columns[name] = np.where(good, columns[name], np.nan)
    return pd.DataFrame(columns)


def _words(name: str) -> str:
    return name.removesuffix("_s").replace("_", " ")


def _named(name: str) -> str:
    unit = "s" if name.endswith("_s") else UNITS.get(name, "")
    return f"{_words(name)}{f' ({unit})' if unit else ''}"
