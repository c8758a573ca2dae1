"""A migration on a time line: who stood still and when, the two barriers, and each record that was processed."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..errors import DspkitError
from .base import PALETTE, Plot, Spec, axis, plot

if TYPE_CHECKING:
    from ..migration import Flow


def migration(flow: Flow, number: int = 0, *, title: str = "") -> Plot:
    """Records by task, as they were processed, with the time for which tasks that move stood still."""
    if not 0 <= number < len(flow.migrations):
        raise DspkitError(
            f"migration {number}", expected=f"one of {len(flow.migrations)}", fix="ask for one with flow.migrate(...)"
        )
    m = flow.migrations[number]
    label = {task: escape(f"{task[0]}[{task[1]}]") for task in flow.tasks}
    begin, end = m.asked_s, max(m.restored_s.values(), default=m.asked_s)
    first, last = begin - 0.5 * (end - begin) - 0.1, end + 0.7 * (end - begin) + 0.1
    near = [(t, task, key) for t, task, key in flow.worked if first <= t <= last]
    rows = [label[t] for t in reversed(list(flow.tasks))]
    traces: list[Spec] = [
        {"type": "scatter", "mode": "markers", "name": "a record", "x": [t for t, _, _ in near],
         "y": [label[task] for _, task, _ in near], "text": [f"key {escape(str(key))}" for _, _, key in near],
         "marker": {"size": 6, "color": PALETTE[0]}, "hovertemplate": "%{text} at %{x:.3f} s<extra></extra>"}
    ]  # fmt: skip
    for i, (task, stopped) in enumerate(m.stopped.items()):
        back = m.restored_s.get(task, last)
        traces.append(
            {"type": "scatter", "mode": "lines", "name": "stands still", "legendgroup": "still", "showlegend": not i,
             "x": [stopped, back], "y": [label[task]] * 2, "line": {"width": 12, "color": "rgba(213, 94, 0, 0.35)"},
             "hovertemplate": f"{back - stopped:.3g} s<extra></extra>"}
        )  # fmt: skip
    marks = {"asked": m.asked_s, "barrier 1": m.barrier_s, "barrier 2": end if m.restored_s else None}
    shown = {text: t for text, t in marks.items() if t is not None}
    layout: Spec = {
        "xaxis": axis("seconds", range=[first, last]),
        "yaxis": axis("", type="category", categoryorder="array", categoryarray=rows, range=[-0.6, len(rows) - 0.4]),
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.14, "yanchor": "bottom"},
        "shapes": [
            {"type": "line", "x0": t, "x1": t, "yref": "paper", "y0": 0, "y1": 1,
             "line": {"width": 1, "dash": "dot", "color": "#000000"}} for t in shown.values()
        ],
        "annotations": [
            {"x": t, "y": 1, "yref": "paper", "yanchor": "bottom", "text": text, "showarrow": False, "textangle": -30,
             "xanchor": "left"} for text, t in shown.items()
        ],
    }  # fmt: skip
    longest = max(m.downtime_s.values(), default=0.0)
    kept = sum(m.buffered.values())
    said = f"{len(m.moves)} of {len(flow.tasks)} tasks moved in {end - begin:.3g} s"
    said += f"; the longest stood still for {longest:.3g} s"
    summary = (
        f"{said}, {kept} records moved in input buffers, {flow.lost} were lost and {flow.repeated} repeats dropped."
    )
    return plot(traces, layout, summary, height=130 + 34 * len(rows), title=title)
