"""The section of ELYSIUM: Figure 9, its dependence on the loads, and the smaller studies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dspkit import apps, workload
from dspkit.core import run
from dspkit.policies.static import Static
from dspkit.profiling import KINDS, errors, learn

from ..page import Found, PageSection, Row, SectionContent, frame, grid, plain, records
from . import acks as elysium_acks
from . import recorded as elysium_recorded
from . import study as paper
from . import waves as elysium_waves
from .loads import LEVELS, MONTHS

if TYPE_CHECKING:
    import pandas as pd


NAME = "ELYSIUM"
LOW = "restarts of 6.5 s, and samples of 10 s hide backlogs that drain within one"
AFTER = "the treatment of failed records was taken after all four were seen"
FEW = "one week has few flights, whose minutes are noisy: see its section"
SHORT, LONG = 6.5, 19.2
PAIR, TRIO = ("joint", "reactive"), ("joint", "reactive", "proactive")
LOADS = {"dense": "recorded", "recorded": "recorded, one week"}
ACKED_LATE = f"figure 9, acked, {LONG} s"
OTHERWISE = {d: f"figure 9, {d}, {LONG} s" for d in elysium_acks.DELIVERIES if d != "again"}


def profilers() -> dict[str, float]:
    """Return the worst error of each kind of curve on a held-out load of half an hour with noise of 5 %."""
    top = apps.rolling_top_words()
    top = replace(top, plant=replace(top.plant, noise=0.05))
    first, other = (
        run(Static(), top.simulator(load, parallelism=4, seed=seed), steps=180)
        for seed, load in enumerate((workload.Sine(250, 180, 900), workload.Square(100, 400, 500)))
    )
    return {kind: max(errors(learn(first, kind=kind), other).values()) for kind in KINDS}


def periods() -> list[dict[str, Any]]:
    return [r | {"pause_s": p} for p in (SHORT, LONG) for r in records(paper.period_study(pause_s=p))]


def show(found: Found) -> SectionContent:
    values: dict[str, str] = {}
    rows: list[Row] = []
    for add in (_figure_9, _kept, _both, _curves, _recorded, _waves, _studies):
        more, headlines = add(found)
        values |= more
        rows += headlines
    return SectionContent(values, rows)


Part = tuple[dict[str, str], list[Row]]


def _figure_9(found: Found) -> Part:
    """Return Figure 9 with acknowledgements, failed records being sent again, beside the printed values."""
    short, late = (_read(found, f"figure 9, acked, {p} s") for p in (SHORT, LONG))
    lines, rows, saves, values = [], [], 0, {}
    for name, shape in elysium_acks.ROWS:
        printed = elysium_acks.printed(name, shape)
        title = f"{name} {LOADS.get(shape, shape)}"
        cells = ["" if p is None else f"{p[0]:.2f} / {p[1]}" for p in printed]
        ours = [short.loc[(name, shape, p)] for p in TRIO]
        cells += [_cell(r) for r in (*ours, *(late.loc[(name, shape, p)] for p in PAIR))]
        lines.append((title, *cells))
        saves += ours[1].saved >= ours[0].saved
        for policy, p, r in zip(PAIR, printed, ours, strict=False):
            if shape in LOADS:
                values[f"{title}, {policy}"] = f"{r.degradation:.2f}"
            if p is not None:
                longer = late.loc[(name, shape, policy)].degradation
                why = f"{FEW if shape == 'recorded' else LOW}; at 19.2 s {longer:.2f}"
                rows.append(Row(NAME, f"{title}, {policy}: degradation", p[0], float(r.degradation), why, "",
                                "chosen after seeing"))  # fmt: skip
                why = "the levels of the load are not printed, ours need one to four nodes"
                rows.append(Row(NAME, f"{title}, {policy}: nodes saved", float(p[1]), float(r.saved), why, " %",
                                "chosen after seeing"))  # fmt: skip
    head = "paper: joint | reactive | proactive | ours: joint | reactive | proactive | ours, 19.2 s: joint | reactive"
    told, headlines = _proactive(found)
    values |= told
    rows += headlines
    values |= {"figure 9": grid(("degradation / nodes saved, %", *head.split(" | ")), lines),
               "saves": f"{saves} of {len(lines)}"}  # fmt: skip
    return values, rows


def _proactive(found: Found) -> Part:
    """Return the proactive rows by predictor, and by the days that it has learned from."""
    lines, rows = [], []
    for r in found["proactive"]:
        title = f"{r['app']} {LOADS.get(r['load'], r['load'])}"
        spread = f"{r['least']:.2f} to {r['most']:.2f}"
        lines.append((title, r["predictor"], r["days"], f"{r['paper']:.2f} / {r['paper saved']}",
                      f"{r['degradation']:.2f} / {r['saved']:.0f}", spread))  # fmt: skip
        if r["predictor"] == "net" and r["days"] == "other":
            other = next(
                x for x in found["proactive"]
                if (x["predictor"], x["app"], x["load"], x["days"])
                == ("autoregression", r["app"], r["load"], "other")
            )  # fmt: skip
            why = f"the paper's net, other days than the judged one; an autoregression: {other['degradation']:.2f}"
            rows.append(Row(NAME, f"{title}, proactive: degradation", r["paper"], r["degradation"], why, "",
                            "chosen after seeing"))  # fmt: skip
            why = f"as above; an autoregression: {other['saved']:.0f} %"
            rows.append(Row(NAME, f"{title}, proactive: nodes saved", float(r["paper saved"]), r["saved"], why, " %",
                            "chosen after seeing"))  # fmt: skip
    head = "proactive, degradation / nodes saved in % | predictor | learned from | paper | ours | degradation by month"
    return {"proactive": grid(head.split(" | "), lines)}, rows


def _both(found: Found) -> Part:
    """Return the paper's thesis, that operators and nodes should be scaled together, beside each of them alone."""
    table, lines = frame(found["both or one"]), []
    for r in found["both or one"]:
        cells = [f"{r[w]:.2f} / {r[f'{w} saved']:.0f}" for w in ("both", "nodes", "operators", "joint")]
        lines.append((f"{r['app']} {r['load']}, restarts of {r['pause_s']} s", *cells))
    less, saves = (table.both < table.nodes).sum(), (table["both saved"] >= table["nodes saved"]).sum()
    joint, of = (table.both <= table.joint).sum(), len(table)
    more = (table["both saved"] > table["joint saved"]).sum()
    why = "an idle instance costs nothing on our plant, so that four of each are free"
    rows = [
        Row(NAME, "abstract: ELYSIUM degrades throughput no more than joint scaling", "often", f"{joint} of {of}",
            "two applications, four shapes, two restarts"),
        Row(NAME, "abstract: ELYSIUM saves more nodes than joint scaling", "always", f"{more} of {of}",
            "the same runs"),
        Row(NAME, "thesis: both scaled degrade less than nodes only (p = 4)", "0.81 against 0.97", f"in {less} of {of}",
            why),
        Row(NAME, "thesis: both scaled save as many nodes as nodes only (p = 4)", "43 against 33 %",
            f"in {saves} of {of}", why),
    ]  # fmt: skip
    head = "degradation / nodes saved, % | both (ELYSIUM) | nodes only, p = 4 | operators only, 4 nodes | joint"
    return {
        "both": grid(head.split(" | "), lines),
        "both less": f"{less} of {of}",
        "both saves": f"{saves} of {of}",
    }, rows


def _curves(found: Found) -> Part:
    """Return Figures 6a, 6b, 10a and 11."""
    thresholds = [
        (f"{r['threshold']:g}", f"{r['degradation']:.2f}", f"{r['saved']:.0f} %") for r in found["thresholds"]
    ]
    waits = [
        (f"{r['app']} {LOADS.get(r['load'], r['load'])}",
         *(f"{r[p]:.1f} s ({r[f'{p} worst']:.0f} s)" for p in PAIR)) for r in found["latencies"]
    ]  # fmt: skip
    held = [(r["scaler"], f"{r['kept up']:.0%}", r["changes"], r["most of an operator"], r["last of an operator"])
            for r in found["static or operators"]]  # fmt: skip
    head = "figure 10a | of the load processed after the rise | changes | most instances of an operator | at the end"
    return {
        "thresholds": grid(("threshold of a node's CPU, figure 6", "degradation", "nodes saved"), thresholds),
        "latencies": grid(("figure 11: mean latency (worst sample)", "joint", "ELYSIUM"), waits),
        "static or operators": grid(head.split(" | "), held),
    }, []


def _kept(found: Found) -> Part:
    """Return the same without acknowledgements, and under other treatments of failed records."""
    short, late = (_read(found, k) for k in ("figure 9", "figure 9, 19.2 s"))
    lines = []
    for name, shape in paper.PAPER:
        ours = [short.loc[(name, shape, p)] for p in TRIO] + [late.loc[(name, shape, p)] for p in PAIR]
        lines.append((f"{name} {'recorded, one week' if shape == 'recorded' else shape}", *map(_cell, ours)))
    head = "without acknowledgements | joint | reactive | proactive | 19.2 s: joint | reactive"
    values = {"figure 9 kept": grid(head.split(" | "), lines)}
    for name in LEVELS:
        for policy in PAIR:
            r = short.loc[(name, "recorded", policy)]
            values[f"{name} {policy}"] = f"{r.degradation:.2f}"
            values[f"{name} {policy} waits"] = f"{r.latency_s:.0f}"
        for policy, of in (("reactive", ""), ("proactive", " ahead"), ("proactive, h = 1", " ahead 1")):
            r = short.loc[(name, "square", policy)]
            values[f"{name} square{of}"] = f"{r.degradation:.2f}"
            values[f"{name} square{of} saved"] = f"{r.saved:.0f} %"
    cells: dict[tuple[Any, ...], list[str]] = {}
    for p in (SHORT, LONG):
        for r in found[f"deliveries, {p} s"]:
            told = f"{r['joint']:.2f} / {r['reactive']:.2f}, {r['wins']} of {r['of']}"
            cells.setdefault((r["app"], LOADS[r["load"]], f"{p} s"), []).append(told)
    values["deliveries"] = grid(
        ("joint / ELYSIUM, no worse in", *elysium_acks.DELIVERIES), [(", ".join(k), *v) for k, v in cells.items()]
    )
    for delivery, part in {"again": ACKED_LATE, **OTHERWISE}.items():
        values[f"off {delivery}"] = f"{elysium_acks.off_by(frame(found[part])):.1f}"
    over = elysium_acks.over_printed(frame(found[ACKED_LATE]))
    values |= {"over least": f"{min(over):.2f}", "over most": f"{max(over):.1f}"}
    never = _read(found, OTHERWISE["never"])
    known = [(a, s) for a, s in elysium_acks.ROWS if s != "square"]
    holds = [never.loc[(a, s, "reactive")].degradation <= never.loc[(a, s, "joint")].degradation for a, s in known]
    values["never holds"] = f"{sum(holds)} of {len(holds)}"
    return values, []


def _read(found: Found, part: str) -> Any:
    return frame(found[part]).set_index(["app", "load", "policy"])


def _cell(r: Any) -> str:
    return f"{r.degradation:.2f} / {r.saved:.0f}"


def _counted(table: pd.DataFrame, rival: str) -> str:
    """Return the number of rows in which it degrades throughput no more than joint scaling, and its mean."""
    return f"{(table[rival] <= table.joint).sum()} of {len(table)} ({table[rival].mean():.2f})"


def _recorded(found: Found) -> Part:
    table, lines = frame(found["days, 6.5 s"] + found["days, 19.2 s"]), []
    for pause_s in (SHORT, LONG):
        for compress in elysium_recorded.COMPRESSIONS:
            for name in LEVELS:
                some = table[(table.pause_s == pause_s) & (table.compress == compress) & (table.app == name)]
                cells = [_counted(some, rival) for rival in ("reactive", "current", "reserve")]
                saved = " / ".join(f"{some[f'{r}_saved'].mean():.0f}" for r in ("joint", "reactive", "reserve"))
                lines.append((f"{name}, {compress:.0f}:1, {pause_s} s", f"{some.joint.mean():.2f}", *cells, saved))
    causes = []
    for r in found["causes"]:
        cells = [f"{r[p]:.2f} / {r[f'{p}_saved']:.0f}" for p in ("joint", "reactive", "current", "reserve")]
        causes.append((f"{r['changed']}, {r['app']}", *cells))
    chosen = table[(table.pause_s == SHORT) & (table.compress == 60) & table.month.isin(MONTHS)]
    more = sum((table[f"{r}_saved"] >= table.joint_saved).sum() for r in ("reactive", "current"))
    head = "flights, replay, restart | joint | reactive, as printed | from what runs | with reserve"
    values = {
        "days": grid((*head.split(" | "), "nodes saved, %: joint / reactive / reserve"), lines),
        "causes": grid(("one change", "joint", "reactive", "from what runs", "with reserve"), causes),
        "days save": f"{more} of {2 * len(table)}",
        "chosen": f"{(chosen.reactive <= chosen.joint).sum()} of {len(chosen)}",
    }
    return values, []


def _waves(found: Found) -> Part:
    lines = []
    bursts = {p: frame(found[f"bursts, {p} s"]) for p in (SHORT, LONG)}
    for stays, title in ((True, "that stay for 3 to 10 minutes"), (False, "that fade at once, in 1 to 5 minutes")):
        cells = []
        for table in bursts.values():
            some = table[(table.hold_s > 0) == stays]
            for rival, against in (("reactive", f" against {some.joint.mean():.3f}"), ("current", "")):
                count = (some[rival] <= some.joint).sum()
                cells.append(f"{count} ({some[rival].mean():.3f}{against})")
        lines.append((title, len(some), *cells))
    head = "bursts | settings | restarts of 6.5 s: as printed | from what runs | 19.2 s: as printed | from what runs"
    values = {"bursts": grid(head.split(" | "), lines)}
    grids = []
    for p in (SHORT, LONG):
        table = frame(found[f"sines, {p} s"])
        for name in LEVELS:
            some = table[table.app == name]
            by = [some[some.period_s == s] for s in elysium_waves.PERIODS_S]
            counts = [f"{(t.reactive <= t.joint).sum()} / {(t.reserve <= t.joint).sum()}" for t in by]
            saved = " / ".join(f"{some[f'{r}_saved'].mean():.0f}" for r in ("joint", "reactive", "reserve"))
            grids.append((f"{name}, restarts of {p} s", *counts, saved))
        values[f"sines {p}"] = f"{(table.reactive <= table.joint).sum()}"
        values[f"sines {p} reserve"] = f"{(table.reserve <= table.joint).sum()}"
        values[f"sines {p} seldom"] = f"{(table.reactive_changes <= table.joint_changes).sum()}"
        if p == SHORT:
            values["sines save"] = f"{(table.reactive_saved >= table.joint_saved).sum()} of {len(table)}"
    periods = [f"{s:g} s" for s in elysium_waves.PERIODS_S]
    values["sines"] = grid(
        (
            "sines of six ranges: as printed / with reserve no worse",
            *periods,
            "nodes saved, %: joint / reactive / reserve",
        ),
        grids,
    )
    squares = frame(found["squares"]).set_index(["app", "policy"])
    for policy in ("reactive", "proactive, h = 5", "proactive, h = 1"):
        parts = [squares.loc[(name, policy)] for name in LEVELS]
        values[f"long {policy}"] = " and ".join(f"{p.degradation:.3f}" for p in parts)
        values[f"long {policy} saved"] = f"{parts[0].saved:.0f} %"
    return values, []


def _studies(found: Found) -> Part:
    step, best = found["step"], found["threshold"]
    table = frame(found["periods"])
    changes = []
    for period in (1.0, 2.0, 4.5, None):
        some = table[table.period_min.isna()] if period is None else table[table.period_min == period]
        ours = [f"{x:.2f}" for x in some.degradation]
        told = "never" if period is None else f"{period:g} min"
        changes.append((told, some.paper.iloc[0], *ours, ", ".join(f"{x:.2f}" for x in some.theory)))
    partial_lines = [(r["scaler"], r["paper"], f"{r['degradation']:.2f} / {r['saved']:.0f}") for r in found["partial"]]
    both = [
        (r["loads"], r["paper"], f"{r['degradation']:.2f} / {r['saved']:.0f}",
         f"{r['T1_degradation']:.2f}, {r['T2_degradation']:.2f}")
        for r in found["together"]
    ]  # fmt: skip
    error = {k: f"{100 * v:.1f} %" for k, v in found["profilers"].items()}
    worst = (
        f"worst profiler {error['linear']} (line), {error['isotonic']} (isotonic), {error['network']} (the paper's net)"
    )
    bandit = f"{best['best']:.2f} by {best['margin']:.3f} over {best['second']:.2f}"
    small = [
        ("Profilers' error, 30 minutes, held-out load", "under 3 %",
         f"{worst}, {error['rprop']} (trained as in the paper), with noise of 5 %"),
        ("Seconds until T1 keeps up after a step", "joint about 150, ELYSIUM 80 to 90",
         f"joint {step['joint']:.0f}, ELYSIUM {step['reactive']:.0f}"),
        ("Threshold of nodes that the bandit chooses", "0.80", f"{bandit}; 0.80 from the paper's degradations"),
    ]  # fmt: skip
    noise = "the plant's selectivities and overheads do not vary: this is the noise of 5 %, which we chose"
    lone = {r["scaler"]: r for r in found["partial"]}
    rows = [
        *(
            Row(
                NAME,
                f"T1 stair, {title}: degradation",
                printed,
                lone[title]["degradation"],
                "one instance per operator is far too slow for our levels" if "p = 4" not in title else "as both",
            )
            for title, printed in (
                ("static, 4 nodes, p = 4", 0.05),
                ("operators only, 2 nodes", 1.47),
                ("operators only, 4 nodes", 0.98),
                ("nodes only, p = 2", 1.43),
                ("nodes only, p = 4", 0.97),
            )
        ),
        *(
            Row(
                NAME,
                f"two applications, {r['loads']}: degradation",
                float(r["paper"].split(" / ")[0]),
                r["degradation"],
                "the levels of the loads are not printed",
            )
            for r in found["together"]
        ),
        *(
            Row(
                NAME,
                f"two applications, {r['loads']}: nodes saved",
                float(r["paper"].split(" / ")[1]),
                r["saved"],
                "the levels of the loads are not printed",
                " %",
            )
            for r in found["together"]
        ),
        Row(NAME, "profilers' error, worst, line", "under 3 %", error["linear"], noise),
        Row(NAME, "profilers' error, worst, net", "under 3 %", error["network"], noise),
        Row(NAME, "seconds until T1 keeps up, joint", 150.0, step["joint"], "samples of 10 s", " s"),
        Row(NAME, "seconds until T1 keeps up, ELYSIUM", 85.0, step["reactive"], "printed: 80 to 90", " s"),
        Row(NAME, "best threshold of nodes", 0.80, best["best"], "nodes of our cluster sustain a higher load"),
    ]
    rows += [
        Row(NAME, f"a change every {r['period_min']:g} min, outage of 19.2 s: degradation", float(r["paper"]),
            r["degradation"], "2d/T; the pause is solved from the first of the two", "", "fitted")
        for r in found["periods"] if r["pause_s"] == LONG and r["period_min"] in (1.0, 2.0)
    ]  # fmt: skip
    values = {
        "small": grid(("", "paper", "ours"), small),
        "changes": grid(("a change every", "paper", "ours, 6.5 s", "ours, 19.2 s", "theory"), changes),
        "partial": grid(("T1 stair", "paper", "ours"), partial_lines),
        "together": grid(("one ELYSIUM for both", "paper", "ours, mean of both", "T1, T2"), both),
    }
    return values, rows


def _threshold() -> dict[str, float]:
    learned = paper.threshold()
    first, second = sorted(learned.values, key=lambda t: -learned.values[t])[:2]
    margin = learned.values[first] - learned.values[second]
    return {"best": learned.best, "second": second, "margin": margin}


def _of(table: Callable[..., Any], **told: Any) -> Callable[[], Any]:
    return partial(_records, table, **told)


def _records(table: Callable[..., Any], **told: Any) -> Any:
    return records(table(**told))


PARTS: dict[str, Callable[[], Any]] = {
    "figure 9": _of(paper.summary),
    "figure 9, 19.2 s": _of(paper.summary, pause_s=LONG),
    "partial": _of(paper.partial_scalers),
    "periods": periods,
    "together": _of(paper.together),
    "step": lambda: plain(paper.step_response()),
    "threshold": _threshold,
    "profilers": profilers,
    "squares": _of(elysium_waves.squares),
    "causes": _of(elysium_recorded.causes),
    "proactive": _of(elysium_acks.proactive),
    "both or one": _of(paper.both_or_one),
    "thresholds": _of(paper.threshold_curve),
    "latencies": _of(paper.latencies),
    "static or operators": _of(paper.static_or_operators),
}
for _delivery, _part in OTHERWISE.items():
    PARTS[_part] = _of(elysium_acks.summary, delivery=_delivery, pause_s=LONG, only=PAIR)
for _pause in (SHORT, LONG):
    PARTS[f"sines, {_pause} s"] = _of(elysium_waves.sines, pause_s=_pause)
    PARTS[f"bursts, {_pause} s"] = _of(elysium_waves.bursts, pause_s=_pause)
    PARTS[f"figure 9, acked, {_pause} s"] = _of(elysium_acks.summary, pause_s=_pause)
    PARTS[f"deliveries, {_pause} s"] = _of(elysium_acks.deliveries, pause_s=_pause)
    PARTS[f"days, {_pause} s"] = _of(elysium_recorded.days, pauses=(_pause,))
SECTION = PageSection(
    PARTS,
    show,
    basis={
        "partial.*(static|operators only).*#saved": "input",  # the number of nodes is given
        "figure 9, acked": "chosen after seeing",  # the treatment of failed records
        "^periods": "fitted",
        "profilers": "chosen after seeing",  # the pause; the noise
    },
)
