"""Policies beside each other: cost against violations, who beats whom, and what an oracle would have run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from ..core import History, MetricError
from .theme import MOST_POINTS, PALETTE, Plot, Spec, axis, plot, si

if TYPE_CHECKING:
    import pandas as pd


MARKS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "pentagon", "hexagon")
SHADES = [[0.0, "#F7B977"], [0.5, "#FFFFFF"], [1.0, "#8EC5E8"]]  # light enough for black numbers on all of them
WORDS = {
    "instance_seconds": "instance-seconds",
    "node_seconds": "node-seconds",
    "late_share": "late, % of the time",
    "lost_share": "events lost, %",
    "regret_share": "regret, % of the oracle's cost",
    "cost": "cost, instance-seconds",
}


class Planned(Protocol):
    """The part of `comparison.Oracle` that its plot needs."""

    @property
    def cost(self) -> float: ...
    @property
    def window_s(self) -> float: ...
    @property
    def rates(self) -> tuple[float, ...]: ...
    @property
    def instances(self) -> list[int]: ...


def pareto(
    table: pd.DataFrame, x: str = "instance_seconds", y: str = "late_share", *, title: str = "", level: float = 0.95
) -> Plot:
    """Plot one point per policy: mean `x` against mean `y` over the cases that all finished, with bootstrap intervals.

    Policies that no other one beats in both scores are joined by a line.

    Parameters
    ----------
    table : DataFrame
        The result of `dspkit.compare`.
    x, y : str
        Columns of the scores.
    title : str, optional
        Title of the figure.
    level : float
        Confidence level of the intervals.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [(p, "sine", "job", "own", s, 1.0 + s, 0.1 * (p == "b")) for p in "ab" for s in range(3)]
    >>> keys = ["policy", "load", "job", "plant", "seed", "instance_seconds", "late_share"]
    >>> pareto(pd.DataFrame(rows, columns=keys)).summary
    'Of 2 policies 1 is undominated in both scores: a. ...'
    """
    from ..comparison import ranking

    across, up = (ranking(table, score, level=level).set_index("policy") for score in (x, y))
    names = [p for p in dict.fromkeys(table["policy"]) if p in across.index and across["mean"][p] == across["mean"][p]]
    times = [100.0 if score.endswith("_share") else 1.0 for score in (x, y)]
    points = {p: (times[0] * float(across["mean"][p]), times[1] * float(up["mean"][p])) for p in names}
    best = _unbeaten(points)
    traces: list[Spec] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "undominated",
            "hoverinfo": "skip",
            "x": [points[p][0] for p in best],
            "y": [points[p][1] for p in best],
            "line": {"color": "#999999", "width": 1.5, "shape": "hv", "dash": "dot"},
        }
    ]
    for i, p in enumerate(names):
        bars = [_bars(frame.loc[p], factor) for frame, factor in ((across, times[0]), (up, times[1]))]
        traces.append({
            "type": "scatter", "mode": "markers", "name": escape(p), "x": [points[p][0]], "y": [points[p][1]],
            "marker": {"size": 11 if p in best else 9, "color": PALETTE[i % len(PALETTE)],
                       "symbol": MARKS[(i + i // len(PALETTE)) % len(MARKS)],
                       "line": {"width": 1, "color": "#222222"}},
            "error_x": bars[0], "error_y": bars[1], "cliponaxis": False,
            "hovertemplate": f"{escape(p)}<br>%{{x:,.0f}}<br>%{{y:.2f}}<extra></extra>",
        })  # fmt: skip
    layout = {
        "xaxis": axis(_words(x)),
        "yaxis": axis(_words(y), rangemode="tozero"),
        "legend": {"x": 1.02, "y": 1, "xanchor": "left"},
    }
    cheap, calm = min(names, key=lambda p: points[p][0]), min(names, key=lambda p: points[p][1])
    are = "is" if len(best) == 1 else "are"
    told = (
        f"Of {len(names)} policies {len(best)} {are} undominated in both scores: {'; '.join(best)}. {cheap} has the "
        f"least {_plainly(x)} ({si(points[cheap][0])}), {calm} the least {_plainly(y)} ({points[calm][1]:.3g})."
    )
    return plot(traces, layout, told, height=460, title=title)


def contest(duels: pd.DataFrame, *, title: str = "") -> Plot:
    """Plot a map of `win_tie_loss`: the share of cases that the policy of the row wins against that of the column.

    Parameters
    ----------
    duels : DataFrame
        The result of `comparison.win_tie_loss`.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> import pandas as pd
    >>> keys = ["policy", "against", "wins", "ties", "losses", "cases"]
    >>> contest(pd.DataFrame([("a", "b", 3, 1, 0, 4), ("b", "a", 0, 1, 3, 4)], columns=keys)).summary
    'Over 4 cases a has the most wins less losses (+3), b the fewest (-3).'
    """
    columns = getattr(duels, "columns", ())
    if missing := [c for c in ("policy", "against", "wins", "ties", "losses", "cases") if c not in columns]:
        raise MetricError(f"no column {missing[0]!r}", expected="a table of win_tie_loss", fix="pass it")
    if duels.empty:
        raise MetricError("no duels", expected="two policies at least", fix="compare more")
    names = list(dict.fromkeys(duels["policy"]))
    by: dict[tuple[str, str], Any] = {(str(r.policy), str(r.against)): r for r in duels.itertuples()}
    cells: list[list[float | None]] = []
    texts: list[list[str]] = []
    for one in names:
        rows = [by.get((one, other)) for other in names]
        cells.append([None if r is None else 100 * (r.wins - r.losses) / r.cases for r in rows])
        texts.append(["" if r is None else f"{r.wins} / {r.ties} / {r.losses}" for r in rows])
    labels = [escape(n) for n in names]
    few = len(names) <= 9
    heat: Spec = {
        "type": "heatmap", "x": labels, "y": labels, "z": cells, "text": texts, "colorscale": SHADES,
        "zmin": -100, "zmax": 100, "xgap": 1, "ygap": 1, "hoverongaps": False,
        "colorbar": {"title": {"text": "wins less<br>losses, %"}, "thickness": 10},
        "hovertemplate": "%{y} against %{x}<br>wins / ties / losses: %{text}<extra></extra>",
    }  # fmt: skip
    if few:
        heat |= {"texttemplate": "%{text}", "textfont": {"size": 11, "color": "black"}}
    net = {n: sum(r.wins - r.losses for (one, _), r in by.items() if one == n) for n in names}
    first, last = max(names, key=lambda n: net[n]), min(names, key=lambda n: net[n])
    layout = {
        "xaxis": axis("against", tickangle=-35, showgrid=False),
        "yaxis": axis("", autorange="reversed", showgrid=False),
    }
    told = (
        f"Over {int(duels['cases'].iloc[0])} cases {first} has the most wins less losses ({net[first]:+d}), "
        f"{last} the fewest ({net[last]:+d})."
    )
    return plot([heat], layout, told, height=max(300, 140 + 26 * len(names)), title=title)


def oracle_instances(plan: Planned, histories: Mapping[str, History], *, title: str = "") -> Plot:
    """Plot the load, and below it the instances of the oracle's plan beside those of policies.

    Parameters
    ----------
    plan : Oracle
        The result of `comparison.oracle`.
    histories : mapping
        Runs under the same load by name.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit import apps, comparison, workload
    >>> app = apps.tweet_words()
    >>> plan = comparison.oracle(app.topology, app.plant, workload.Constant(100), duration_s=60.0)
    >>> oracle_instances(plan, {}).summary
    "Instance-seconds: oracle 240. The oracle's cost is 240."
    """
    t = [plan.window_s * i for i in range(len(plan.rates))]
    step = max(1, len(t) // MOST_POINTS)
    load: Spec = {
        "type": "scatter",
        "mode": "lines",
        "name": "load",
        "x": t[::step],
        "y": list(plan.rates[::step]),
        "line": {"color": "#777777", "width": 1.5, "shape": "hv"},
        "yaxis": "y2",
        "showlegend": False,
        "hovertemplate": "t = %{x:,.0f} s: %{y:,.0f} records/s<extra></extra>",
    }
    traces = [load, _steps(t, plan.instances, "oracle", PALETTE[6], 2.5, "solid")]
    for i, (name, history) in enumerate(histories.items()):
        counts = [s.snapshot.deployment.instances for s in history]
        times = [s.snapshot.t - s.snapshot.window_s for s in history]
        traces.append(_steps(times, counts, name, PALETTE[i % 6], 1.8, ("dash", "dot", "dashdot")[i % 3]))
    layout = {
        "xaxis": axis("time, s"),
        "yaxis": axis("instances", domain=[0, 0.64], rangemode="tozero"),
        "yaxis2": axis("records/s", domain=[0.7, 1], rangemode="tozero"),
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    }
    used = plan.window_s * sum(plan.instances)
    said = ", ".join(
        f"{name} {si(sum(s.snapshot.deployment.instances * s.snapshot.window_s for s in h))}"
        for name, h in histories.items()
    )
    told = f"Instance-seconds: oracle {si(used)}{', ' + said if said else ''}. The oracle's cost is {si(plan.cost)}."
    return plot(traces, layout, told, height=420, title=title)


def _steps(t: Sequence[float], y: Sequence[float], name: str, colour: str, width: float, dash: str) -> Spec:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": escape(name),
        "x": list(t),
        "y": list(y),
        "line": {"color": colour, "width": width, "shape": "hv", "dash": dash},
        "hovertemplate": f"{escape(name)}: %{{y}} at t = %{{x:,.0f}} s<extra></extra>",
    }


def _bars(row: Any, factor: float) -> Spec:
    low, high, mean = (factor * float(row[name]) for name in ("low", "high", "mean"))
    if low != low:
        return {"visible": False}
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - mean],
        "arrayminus": [mean - low],
        "thickness": 1,
        "width": 3,
        "color": "#555555",
    }


def _unbeaten(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the points that no other one dominates, sorted by x."""
    names = [
        p
        for p, (a, b) in points.items()
        if not any(c <= a and d <= b and (c, d) != (a, b) for q, (c, d) in points.items() if q != p)
    ]
    return sorted(names, key=lambda p: points[p])


def _words(score: str) -> str:
    return WORDS.get(score, f"{score.removesuffix('_s').replace('_', ' ')}, s" if score.endswith("_s") else score)


def _plainly(score: str) -> str:
    return _words(score).partition(",")[0]
