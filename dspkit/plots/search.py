"""Plots of a search: expected score and expected improvement over two operators, and scores run by run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import MetricError
from .theme import DASHES, PALETTE, Plot, Spec, axis, plot

if TYPE_CHECKING:
    from ..bo import LatencySurrogate, Proposal, Sample, Surrogate

MARKS = ("circle", "square", "diamond", "triangle-up", "x", "cross")
MOST_NUMBERS = 40  # most runs with their number beside them


def posterior(
    surrogate: Surrogate | LatencySurrogate,
    samples: Sequence[Sample],
    proposal: Proposal | None = None,
    *,
    names: Sequence[str] = ("first", "second"),
    xi: float = 0.01,
    threshold: float | None = None,
    title: str = "",
) -> Plot:
    """Plot two maps over the instances of two operators: the expected score, and the expected improvement.

    Runs are dots with their number, the best one a ring, the next one a star.

    Parameters
    ----------
    surrogate : Surrogate or LatencySurrogate
        The fitted model of the scores.
    samples : sequence of Sample
        The runs so far.
    proposal : Proposal, optional
        The next run.
    names : sequence of str
        Names of the two operators.
    xi : float
        Improvement that does not count.
    threshold : float, optional
        Score at which the search stops, drawn as a line on the first map.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit.bo import Lattice, Sample, Search
    >>> box, samples = Lattice((2, 3), 9), [Sample((2, 3), 0.7), Sample((9, 3), 0.8)]
    >>> posterior(Search().surrogate(box, samples), samples).summary
    'After 2 runs the best is 9, 3 with a score of 0.800; nothing is left to try.'
    """
    low, high = surrogate.lattice.low, surrogate.lattice.high
    if len(low) != 2 or not samples:
        raise MetricError(
            f"{len(low)} operators and {len(samples)} runs",
            expected="two operators, at least one run",
            fix="fix the others",
        )
    if len(names) != 2:
        raise MetricError(f"names {names!r:.60}", expected="two", fix="one for each operator")
    _finite(s.score for s in samples)
    _finite([] if threshold is None else [threshold])
    names = [escape(str(n)) for n in names]
    across, up = (np.arange(a, b + 1) for a, b in zip(low, high, strict=True))
    grid = np.stack(np.meshgrid(across, up, indexing="ij"), axis=-1).reshape(-1, 2)
    mean, sigma = surrogate(grid)
    best = max(samples, key=lambda s: s.score)
    from ..bo import LatencySurrogate, expected_improvement  # needs SciPy, which a plain installation does not have

    if isinstance(surrogate, LatencySurrogate):  # the same criterion as that of the search
        gain = np.exp(surrogate.log_improvement(grid, float(surrogate.mean([s.k for s in samples]).max()) + xi))
    else:
        gain = expected_improvement(mean, sigma, best.score, xi)
    shape = (len(across), len(up))
    floor = max(float(gain.max()), 1e-300) * 1e-6  # eyes distinguish less than six powers of ten
    powers = np.log10(np.maximum(gain, floor))
    told = np.stack([sigma, gain], axis=-1).reshape(*shape, 2).transpose(1, 0, 2)
    common: Spec = {
        "type": "heatmap",
        "x": across.tolist(),
        "y": up.tolist(),
        "colorscale": "Cividis",
        "customdata": [[[float(f"{v:.4g}") for v in cell] for cell in line] for line in told.tolist()],
    }
    bar: Spec = {"thickness": 11, "len": 0.9}
    ticks = list(range(math.ceil(powers.min()), math.floor(powers.max()) + 1))
    first: Spec = {
        **common,
        "z": mean.reshape(shape).T.round(6).tolist(),
        "colorbar": {**bar, "x": 0.405},
        "hovertemplate": "%{x} and %{y} instances<br>score %{z:.4f} ± %{customdata[0]:.4f}<extra></extra>",
    }
    second: Spec = {
        **common,
        "z": powers.reshape(shape).T.round(4).tolist(),
        "colorbar": {**bar, "x": 0.985, "tickvals": ticks, "ticktext": [f"1e{n}" for n in ticks]},
        "hovertemplate": "%{x} and %{y} instances<br>improvement %{customdata[1]:.2g}<extra></extra>",
    }
    traces: list[Spec] = [first, {**second, "xaxis": "x2", "yaxis": "y2"}]
    if threshold is not None:
        line = {"color": "white", "width": 2, "dash": "dash"}
        contours = {"start": threshold, "end": threshold, "size": 1, "coloring": "none", "showlabels": True}
        traces.append(
            {
                **{n: first[n] for n in ("x", "y", "z")},
                "type": "contour",
                "contours": contours,
                "line": line,
                "showscale": False,
                "name": "stop threshold",
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    number = [str(i) for i in range(1, len(samples) + 1)] if len(samples) <= MOST_NUMBERS else None
    dots = _marks([s.k for s in samples], "run", "circle", "#FFFFFF", 15 if number else 7)
    dots["hovertext"] = [f"run {i}: score {s.score:.4f}" for i, s in enumerate(samples, 1)]
    if number:
        dots |= {"mode": "markers+text", "text": number, "textfont": {"size": 9, "color": "black"}}
    ring = _marks([best.k], "best", "circle-open", PALETTE[1], 24, 3)
    star = _marks([proposal.k], "next", "star", PALETTE[3], 19) if proposal else None
    for trace in (dots, ring, star):
        if trace:
            traces += [trace, {**trace, "xaxis": "x2", "yaxis": "y2", "showlegend": False}]
    heads = ((0.2, "expected score"), (0.78, "expected improvement"))
    ends = [{"range": [float(a) - 0.8, float(b) + 0.8], "zeroline": False} for a, b in zip(low, high, strict=True)]
    layout = {
        "xaxis": axis(f"instances of {names[0]}", domain=[0, 0.4], **ends[0]),
        "xaxis2": axis(f"instances of {names[0]}", domain=[0.58, 0.98], anchor="y2", **ends[0]),
        "yaxis": axis(f"instances of {names[1]}", **ends[1]),
        "yaxis2": axis("", anchor="x2", **ends[1]),
        "legend": {"orientation": "h", "y": -0.2},
        "annotations": [
            {
                "x": x,
                "y": 1.02,
                "xref": "paper",
                "yref": "paper",
                "xanchor": "center",
                "yanchor": "bottom",
                "showarrow": False,
                "text": text,
            }
            for x, text in heads
        ],
    }
    said = f"After {len(samples)} runs the best is {_named(best.k)} with a score of {best.score:.3f}; "
    if proposal is None:
        said += "nothing is left to try."
    else:
        said += (
            f"next {_named(proposal.k)}, of which {proposal.mean:.3f} ± {proposal.sigma:.3f} is expected, an "
            f"improvement of {proposal.improvement:.2g}."
        )
    return plot(traces, layout, said, height=430, title=title)


def scores(ways: Mapping[str, Sequence[Sample]], threshold: float, *, title: str = "") -> Plot:
    """Plot the scores of one or several searches run by run, the best so far as a line, and the stop threshold.

    Parameters
    ----------
    ways : mapping
        The runs of each search by name.
    threshold : float
        Score at which a search stops.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit.bo import Sample
    >>> scores({"bo": [Sample((1, 2), 0.5), Sample((2, 2), 0.9)]}, 0.8).summary
    'bo reaches 0.900 in 2 runs. The threshold is 0.800.'
    """
    if not ways or not all(ways.values()):
        raise MetricError("a search without runs", expected="at least one run of each", fix="run the search first")
    _finite([threshold, *(s.score for samples in ways.values() for s in samples)])
    traces, said = [], []
    for i, (name, samples) in enumerate(ways.items()):
        x, y = list(range(1, len(samples) + 1)), [s.score for s in samples]
        colour, mark = PALETTE[i % len(PALETTE)], MARKS[i % len(MARKS)]
        points = {"type": "scatter", "x": x, "y": y, "mode": "markers", "legendgroup": name, "showlegend": False}
        points["hovertext"] = [
            f"{escape(name)}, run {n}: {_named(s.k)}, {s.score:.4f}" for n, s in zip(x, samples, strict=True)
        ]
        best = np.maximum.accumulate(y).tolist()
        line = {"color": colour, "dash": DASHES[i % len(DASHES)], "shape": "hv"}
        traces.append({**points, "hoverinfo": "text", "marker": {"color": colour, "symbol": mark, "size": 8}})
        traces.append(
            {
                "type": "scatter",
                "x": x,
                "y": best,
                "mode": "lines",
                "name": escape(name),
                "line": line,
                "legendgroup": name,
                "hoverinfo": "skip",
            }
        )
        said.append(f"{name} reaches {best[-1]:.3f} in {len(samples)} run{'s' if len(samples) > 1 else ''}")
    most = max(len(samples) for samples in ways.values())
    line = {"color": "#777777", "dash": "dot"}
    traces.append(
        {
            "type": "scatter",
            "x": [1, max(2, most)],
            "y": [threshold] * 2,
            "mode": "lines",
            "name": "stop threshold",
            "line": line,
            "hoverinfo": "skip",
        }
    )
    layout = {
        "xaxis": axis("real runs", dtick=max(1, round(most / 12))),
        "yaxis": axis("score"),
        "legend": {"orientation": "h", "y": -0.2},
    }
    return plot(traces, layout, f"{'; '.join(said)}. The threshold is {threshold:.3f}.", height=360, title=title)


def _marks(
    points: Sequence[tuple[int, ...]], name: str, symbol: str, colour: str, size: int, width: float = 1.0
) -> dict[str, Any]:
    marker = {"symbol": symbol, "size": size, "color": colour, "line": {"width": width}}
    if not symbol.endswith("open"):
        marker["line"] = {"width": width, "color": "black"}
    x, y = ([k[i] for k in points] for i in (0, 1))
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": y,
        "name": name,
        "marker": marker,
        "hoverinfo": "text",
        "hovertext": [f"{name}: {_named(k)}" for k in points],
    }


def _finite(values: Iterable[float]) -> None:
    for value in values:
        if not isinstance(value, Real) or not math.isfinite(value):
            raise MetricError(f"{value!r:.60}", expected="a finite score", fix="leave out runs that gave none")


def _named(k: Sequence[int]) -> str:
    return ", ".join(map(str, k))
