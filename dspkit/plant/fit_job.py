"""What a recorded run shows of the whole job: noise, pauses, the mode of work, cores of the nodes."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import stats

from .cluster import Node
from .fit_numbers import Array, Interval, mean, ratio, variance
from .fit_operators import Reading

_WHOLE = 1 - 1e-9  # share of a window that is all of it
_SURE = 0.5  # half the width of an interval that leaves one whole number of cores


def job(run: Reading) -> dict[str, Any]:
    """The plant's own fields, as far as the run tells them; after the operators, whose residuals are the noise."""
    law = Counter(s.law for s in run.seen).most_common()
    if len(law) > 1:
        told = " and ".join(f"{n} {name}" for name, n in law)
        run.notes.append(f"The mode changed during the run ({told} windows): fit each part by itself.")
    known = {"law": law[0][0]} | _noise(run) | _pause(run) | _nodes(run)
    if law[0][0] == "sequential":
        known |= _overhead(run)
    run.notes.append("Not in snapshots, so as in start or by default: distributions, links, state, speeds, faults.")
    return known


def _noise(run: Reading) -> dict[str, Any]:
    """Spread of whole windows about the law, over all operators: $v = \\ln(1+cv^2)$ of a lognormal."""
    r = np.concatenate([np.zeros(0), *(x.residuals - x.residuals.mean() for x in run.laws)])
    n = np.concatenate([np.zeros(0), *(x.records for x in run.laws)])
    freedom = len(r) - sum(min(3, len(x.seen)) for x in run.laws)
    if freedom < 3:
        run.unknown("job", "noise", "too few windows")
        return {}
    v, c = variance(r, n)
    v, chance = v * len(r) / freedom, c * float((1 / n).mean())
    ends = freedom / stats.chi2.ppf([(1 + run.confidence) / 2, (1 - run.confidence) / 2], freedom)
    low, value, high = (
        min(1.0, math.sqrt(math.expm1(min(1.0, max(0.0, (v + chance) * x - chance))))) for x in (ends[0], 1.0, ends[1])
    )
    return {"noise": run.add("job", "noise", Interval(value, low, high), len(r))}


def _pause(run: Reading) -> dict[str, Any]:
    """Downtime from each change on, over as many windows as it lasts; those that the next change cuts are set apart."""
    whole, cut = _pauses(run)
    state = 0.0
    if run.start and run.start.pause_kind == "savepoint":  # which the plant counts beside its pause
        state = 2 * sum(s.state_bytes for s in run.start.services.values()) / run.start.state_bytes_per_s
    if whole:
        notes = ["one rescale only"] if len(whole) == 1 else []
        notes += [f"{len(cut)} more were cut short"] if cut else []
        value = mean(np.maximum(0.0, np.array(whole) - state), run.confidence)
        return {"pause_s": min(3600.0, run.add("job", "pause_s", value, len(whole), "; ".join(notes)))}
    if cut:
        least = max(0.0, max(cut) - state)
        run.notes.append("Each pause was cut by the next change, so it is longer than this: rest between changes.")
        return {"pause_s": min(3600.0, run.add("job", "pause_s", Interval(least, least), len(cut), "at least"))}
    run.unknown("job", "pause_s", "no rescale was seen; change a parallelism")
    return {}


def _pauses(run: Reading) -> tuple[list[float], list[float]]:
    """Seconds of the pauses that were seen whole, and of those cut by the next change or the end of the run."""
    whole: list[float] = []
    cut: list[float] = []
    going: float | None = None
    for before, s in pairwise(run.seen):
        stands = before.downtime_s >= before.window_s * _WHOLE
        if s.deployment != before.deployment:
            if going is not None:
                (cut if stands else whole).append(going)
            going = 0.0
        if going is not None:
            going += s.downtime_s
            if s.downtime_s == 0:
                whole.append(going)
                going = None
    if going is not None:
        last = run.seen[-1]
        (cut if last.downtime_s >= last.window_s * _WHOLE else whole).append(going)
    return whole, cut


def _overhead(run: Reading) -> dict[str, Any]:
    """The part of a batch's time in which no stage works, while batches follow each other without a gap.

    Then a record stays in its batch for as long as the batch takes, $T$ = mean latency, and the overhead is
    $T\\,(1-\\sum_i u_i)$ with u the utilisation of each stage. Where batches also wait for their trigger this is more:
    so the deployment that shows the least counts.
    """
    shown: dict[Any, list[float]] = {}
    for before, s in pairwise(run.seen):
        whole = (
            s.latency is not None and s.latency.mean <= s.window_s / 2 and len(s.operators) == len(run.topology.order)
        )
        if s.latency and whole and min(before.lag, s.lag) > 0 and not s.downtime_s:
            idle = max(0.0, 1 - sum(m.utilisation for m in s.operators.values()))
            shown.setdefault(s.deployment, []).append(s.latency.mean * idle)
    if not shown:
        why = (
            "no window of two batches or more with records waiting; load the job beyond its capacity, in longer windows"
        )
        run.unknown("job", "batch_overhead_s", why)
        return {}
    enough = [v for v in shown.values() if len(v) > 2] or list(shown.values())
    values = np.array(min(enough, key=lambda v: sum(v) / len(v)))
    note = "with the wait for the last instance of a stage"
    found = run.add("job", "batch_overhead_s", mean(values, run.confidence), len(values), note)
    return {"batch_overhead_s": min(60.0, found)}


def _nodes(run: Reading) -> dict[str, Any]:
    """Cores in use over the share of cores in use; node by node where their shares differ enough to tell."""
    names = list(dict.fromkeys(name for s in run.seen for name in s.nodes))
    rows = []
    for s in run.seen:
        cpu = [m.cpu for m in s.operators.values() if m.cpu is not None]
        if len(cpu) == len(run.topology.order) and set(s.nodes) == set(names) and sum(cpu) * sum(s.nodes.values()) > 0:
            rows.append((*(s.nodes[n] for n in names), sum(cpu)))
    if not rows:
        for name in names:
            run.unknown(name, "cores", "the CPU of operators is not metered")
        if run.start is None:
            run.notes.append("Cores are not metered: four nodes of 16 were assumed; pass those there are in start.")
        return {}
    shares, used = np.array(rows)[:, :-1], np.array(rows)[:, -1]
    found = _by_node(shares, used, run.confidence)
    note = "" if found or len(names) == 1 else "if all nodes are alike"
    alike = ratio(used, shares.sum(axis=1), run.confidence)
    found = found or [alike] * len(names)
    cores = {n: max(1, round(run.add(n, "cores", c, len(rows), note))) for n, c in zip(names, found, strict=True)}
    if run.start is None:
        return {"nodes": {name: Node(min(4096, count)) for name, count in cores.items()}}
    known = run.start.nodes
    if odd := [n for n, count in cores.items() if n not in known or known[n].cores != count]:
        run.notes.append(f"Meters and start differ in the cores of {', '.join(odd)}; those of start were kept.")
    return {}


def _by_node(shares: Array, used: Array, confidence: float) -> list[Interval] | None:
    """Cores of each node by least squares, if each comes out as one whole number."""
    n, m = shares.shape
    if n <= m or np.linalg.matrix_rank(shares, tol=1e-6) < m:
        return None
    cores, *_ = np.linalg.lstsq(shares, used, rcond=None)
    spread = float(((used - shares @ cores) ** 2).sum()) / (n - m)
    errors = np.sqrt(spread * np.diag(np.linalg.inv(shares.T @ shares)))
    errors = np.maximum(errors * float(stats.t.ppf((1 + confidence) / 2, n - m)), 1e-6 * np.abs(cores))
    if (errors > _SURE).any() or (cores < _SURE).any():
        return None
    return [Interval(float(c), float(c - e), float(c + e)) for c, e in zip(cores, errors, strict=True)]
