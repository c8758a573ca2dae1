"""Plots of advice: the loads of a recorded job, and the recommendations of policies."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from .theme import PALETTE, Plot, Spec, axis, plot

if TYPE_CHECKING:
    from ..advice import Advice


SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon", "triangle-down", "pentagon")
_ROW_PX = 64


def loads(advice: Advice, *, title: str = "") -> Plot:
    """Plot each operator's load with its interval, now and under the recommended deployment; 100 % is its capacity.

    Parameters
    ----------
    advice : Advice
        The result of `dspkit.advise`.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit import advise, apps, run, workload
    >>> from dspkit.policies.static import Static
    >>> history = run(Static(), apps.word_count().simulator(workload.Constant(140e3), parallelism=3), steps=20)
    >>> loads(advise(history, policies=["ds2"])).summary
    '...count...'
    """
    order = advice.history.topology.order
    now = [advice.needs.load(n) for n in order]
    y = list(range(len(order)))
    ends: list[tuple[float, float]] = [
        (0.0, 0.0) if k.value is None or k.low is None or k.high is None else (k.value - k.low, k.high - k.value)
        for k in now
    ]
    marked = [n == advice.bottleneck for n in order]
    traces: list[Spec] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": "now",
            "y": y,
            "x": [k.value for k in now],
            "width": 0.5,
            "marker": {
                "color": [PALETTE[1] if m else PALETTE[5] for m in marked],
                "pattern": {"shape": ["/" if m else "" for m in marked]},
            },
            "error_x": {"type": "data", "array": [b for _, b in ends], "arrayminus": [a for a, _ in ends]},
            "hovertemplate": "%{x:.1%}<extra>now</extra>",
        }
    ]
    if advice.choice is not None:
        then = advice.after[advice.choice].loads
        traces.append(
            {"type": "scatter", "mode": "markers", "name": f"with {escape(advice.choice)}", "y": y,
             "x": [then[n].value for n in order], "hovertemplate": "%{x:.1%}<extra>afterwards</extra>",
             "marker": {"symbol": "diamond", "size": 11, "color": "#FFFFFF", "line": {"width": 2, "color": "#000000"}}}
        )  # fmt: skip
    most = max((x for t in traces for x in t["x"] if x is not None), default=1.0)
    high = max([k.high or 0.0 for k in now])
    layout = _rows(advice, [f"{escape(n)} × {advice.needs.parallelism[n]}" for n in order])
    layout |= {
        "xaxis": axis("load: demand over capacity", tickformat=".0%", range=[0, 1.08 * max(1, most, high)]),
        "shapes": [{"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1,
                    "line": {"width": 1.5, "dash": "dash", "color": "#444444"}}],
    }  # fmt: skip
    return plot(traces, layout, advice.sentences[0], height=110 + _ROW_PX * len(order), title=title)


def recommended(advice: Advice, *, title: str = "") -> Plot:
    """Plot the instances of each operator that policies recommend, beside the running ones.

    Parameters
    ----------
    advice : Advice
        The result of `dspkit.advise`.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit import advise, apps, run, workload
    >>> from dspkit.policies.static import Static
    >>> history = run(Static(), apps.word_count().simulator(workload.Constant(140e3), parallelism=3), steps=20)
    >>> recommended(advise(history, policies=["ds2"])).summary
    '...ds2...'
    """
    order = advice.history.topology.order
    told = [(r.policy, r.deployment.parallelism) for r in advice.recommendations if r.deployment is not None]
    traces: list[Spec] = []
    for i, name in enumerate(order):
        says = [k[name] for _, k in told]
        if says and min(says) < max(says):
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": [min(says), max(says)],
                    "y": [i, i],
                    "showlegend": False,
                    "hoverinfo": "skip",
                    "line": {"width": 14, "color": "#EEEEEE"},
                }
            )
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "now",
            "x": [advice.needs.parallelism[n] for n in order],
            "y": list(range(len(order))),
            "hovertemplate": "%{x} run<extra></extra>",
            "marker": {"symbol": "line-ns", "size": 34, "line": {"width": 3, "color": "#444444"}},
        }
    )
    for j, (policy, k) in enumerate(told):
        off = 0.7 * (j + 0.5) / len(told) - 0.35  # side by side if they agree
        marker: dict[str, Any] = {"symbol": SYMBOLS[j % len(SYMBOLS)], "size": 9, "color": PALETTE[j % len(PALETTE)]}
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": escape(policy),
                "marker": marker,
                "x": [k[n] for n in order],
                "y": [i + off for i in range(len(order))],
                "hovertemplate": f"%{{x}} by {escape(policy)}<extra></extra>",
            }
        )
    layout = _rows(advice, [escape(n) for n in order])
    layout["xaxis"] = axis("instances", rangemode="tozero", tickformat="d")
    return plot(traces, layout, advice.told, height=130 + _ROW_PX * len(order), title=title)


def _rows(advice: Advice, labels: list[str]) -> Spec:
    """Return the layout of one row per operator, sources on top."""
    rows = list(range(len(labels)))
    y = axis("", tickvals=rows, ticktext=labels, range=[len(rows) - 0.5, -0.5], zeroline=False)
    return {"yaxis": y, "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0}}
