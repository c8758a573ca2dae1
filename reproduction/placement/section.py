"""The section of placement heuristics: Table 5.2."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..page import Found, PageSection, Row, SectionContent, grid, records
from .study import (
    LABELS,
    LINKAGES,
    PRINTED_MEAN_PD,
    PRINTED_PD,
    PRINTED_RANGES,
    PRINTED_SP,
    SHAPES,
    WEIGHTS,
    cells,
    widest,
)

TABLE = "Placement heuristics"
WHY = {
    "hierarchical ODP": "clusters are k-medoids",
    "ODP-PS": "sets merge by average linkage, one of four readings, chosen after seeing them",
    "ODP+T": "our solver never reaches the limit",
    "RES-ODP": "ranges of each problem are narrower than the thesis's",
    "greedy, no penalty": "ranges of each problem are narrower than the thesis's",
    "local search": "the thesis's ranges are wider than those of each problem",
    "greedy": "nodes in order of availability make it optimal under w_a",
}


def means(shape: str) -> dict[str, Any]:
    """Return the mean degradation and speed-up of one application, median seconds, and the number of proven optima."""
    found = cells(shapes=(shape,))
    by = found.groupby(["ranges", "method", "weights"])[["degradation", "speed_up"]].mean().reset_index()
    own = found[found.ranges == "problem"]
    best = own.drop_duplicates(["nodes", "seed", "weights"])
    seconds = own.groupby("method").seconds.median().reset_index()
    proven = {"proven": int((best.gap <= 1e-6).sum()), "problems": len(best)}
    sizes = own[own.weights == "w_r"].groupby(["method", "nodes"])[["seconds", "exact_s"]].median().reset_index()
    return {"means": records(by), "seconds": records(seconds), "sizes": records(sizes), **proven}


def show(found: Found) -> SectionContent:
    by: dict[tuple[str, ...], tuple[float, float]] = {}
    for shape in SHAPES:
        for r in found[shape]["means"]:
            by[r["ranges"], r["method"], shape, r["weights"]] = (r["degradation"], r["speed_up"])
    values = {
        kind: _table(by, f"{kind}", f"ranges of each {kind}{', as in the thesis' if kind == 'application' else ''}")
        for kind in ("application", "problem")
    }
    rows = []
    for method in LABELS:
        for kind, title in (("problem", "exact ranges"), ("application", "the thesis's ranges")):
            if kind == "problem" or method in ("local search", "greedy", "ODP-PS"):
                ours = _mean(by, kind, method, 0)
                what = f"{method}: mean degradation, {title}"
                basis = "chosen after seeing" if method == "ODP-PS" else ""
                rows.append(Row(TABLE, what, PRINTED_MEAN_PD[method], ours, WHY.get(method, ""), " %", basis))
    speed, told = _mean(by, "problem", "local search", 1), []
    for method in LABELS:
        printed, ours = sum(PRINTED_SP[method]) / len(PRINTED_SP[method]), _mean(by, "problem", method, 1)
        why = "over our own solver, not over CPLEX"
        rows.append(Row(TABLE, f"{method}: mean speed-up", printed, ours, why, " x"))
        told.append(f"{method} {ours:,.3g} (printed {printed:,.3g})")
    names = {"average": "ODP-PS", **{linkage: f"ODP-PS, {linkage}" for linkage in LINKAGES}}
    readings = [
        (title, *(f"{_mean(by, ranges, name, 0):.2f} %" for ranges in ("application", "problem")))
        for title, name in names.items()
    ]
    ms = {r["method"]: 1000 * r["seconds"] for r in found["sequential"]["seconds"]}
    return SectionContent(
        {
            "application": values["application"],
            "problem": values["problem"],
            "proven": f"{sum(found[s]['proven'] for s in SHAPES)} of {sum(found[s]['problems'] for s in SHAPES)}",
            "local search": f"{_mean(by, 'problem', 'local search', 0):.2f}",
            "speed-up": f"{speed:.0f}",
            "speed-ups": f"Means of all: {'; '.join(told)}.",
            "linkages": grid(("linkage of the sets", "the thesis's ranges", "exact ranges"), readings),
            "hierarchical speed-up": f"{_mean(by, 'problem', 'hierarchical ODP', 1):.1f}",
            "search ms": f"{ms['local search']:.1f}",
            "greedy ms": f"{ms['greedy']:.1f}",
            "ranges": _ranges(found["ranges"]),
        },
        rows,
    )


def _ranges(data: Any) -> str:
    lines = []
    for r in data:
        for title, ends in (("printed", PRINTED_RANGES[r["shape"]]), ("ours", tuple(list(r.values())[1:]))):
            lines.append(
                (
                    f"{r['shape']}, {title}",
                    *(f"{a:,.1f} to {b:,.1f}" for a, b in zip(ends[::2], ends[1::2], strict=True)),
                )
            )
    return grid(("table 5.1", "A, %", "R, ms", "Z, KB"), lines)


def _mean(by: dict[tuple[str, ...], tuple[float, float]], ranges: str, method: str, i: int) -> float:
    found = [by[ranges, method, shape, kind][i] for shape in SHAPES for kind in WEIGHTS]
    return sum(found) / len(found)


def _table(by: dict[tuple[str, ...], tuple[float, float]], ranges: str, title: str) -> str:
    lines = []
    for method in LABELS:
        ours = [" ".join(f"{abs(round(by[ranges, method, s, k][0], 1)):g}" for k in WEIGHTS) for s in SHAPES]
        printed = [" ".join(map(str, PRINTED_PD[method][4 * i : 4 * i + 4])) for i in range(len(SHAPES))]
        lines.append((method, *ours, f"**{_mean(by, ranges, method, 0):.2f}**", f"{PRINTED_MEAN_PD[method]:g}"))
        lines.append((f"{method}, printed", *printed, "", ""))
    return grid((title, "diamond w_a, w_r, w_z, all", "sequential", "replicated", "mean", "printed"), lines)


SECTION = PageSection(
    {**{shape: partial(means, shape) for shape in SHAPES}, "ranges": widest},
    show,
    basis={
        "method=ODP-PS": "chosen after seeing",
        r"^ranges.*#R_": "fitted",  # 17 ms on physical links: since only then are these ranges about the printed ones
        r"^ranges\[shape=(diamond|replicated).*#Z_": "chosen after seeing",  # which of the two labels is which
    },
)
