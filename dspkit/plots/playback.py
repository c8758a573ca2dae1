"""A run as plain data for pictures that move: the graph once, one row per window, and each decision in sentences.

A browser that draws a run while it goes is sent the rows that it does not have yet. Numbers have four digits, more than
a screen shows. `why` of a decision has other keys in each policy: numbers per operator become one sentence with the
deciding inequality per changed operator, rules become sentences of their own, and the rest is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any

from ..core import Deployment, History, Policy, Snapshot, Step, Topology, changes, knobs_of, why_text
from ..core.policy import needs_of
from .graph import positions
from .run import tell
from .theme import si

MOST_RECORDED = 4000  # windows times operators of a recording, which is then some 1 MB
MOST_INSTANCES = 64  # instances of an operator that are shown one by one
MOST_OPERATORS = 6  # operators of which a decision is explained one by one
_DEMAND = ("demand", "arrivals")  # keys of the records/s that arrive at each operator
_CAPACITIES = ("true rate", "observed rate", "rates")  # keys of the records/s that one instance can do
_SHARES = ("use of a core", "core use", "instance CPU", "load")  # keys of shares of what an instance has
_QUEUES = ("lag", "pending")  # keys of records that wait
_WAITING = (  # rules of windows in which a policy does not look, and what they mean
    (re.compile(r"measured ([\d.,]+) of ([\d.,]+) s"), "It has measured {0} s of the {1} s that it needs to decide."),
    (re.compile(r"collected ([\d.,]+) of ([\d.,]+) s"), "It has collected {0} s of the {1} s that it decides on."),
    (re.compile(r"measures rates for ([\d.,]+) s"), "It measures rates for {0} s before it decides."),
    (re.compile(r"looks again at t = ([\d.,]+) s"), "It looks again at t = {0} s."),
    (re.compile(r"stabilises"), "It lets the job settle before it collects measurements."),
    (re.compile(r"(?:measures|collects)"), "It measures until its next decision is due."),
    (re.compile(r"waits for its next look"), "It waits until its next look is due."),
    (re.compile(r"cooldown, (\d+) windows? left"), "It rests after its last change: {0} more windows."),
    (re.compile(r"a rebalance is in progress"), "Its last change is still being carried out."),
    (
        re.compile(r"waits for a request for machines"),
        "It acts only when asked for machines: press Scale out or Scale in.",
    ),
    (re.compile(r"keeps what runs"), "It never changes anything: every change is yours."),
)


def sentences(step: Step) -> tuple[str, ...]:
    """Return why a window's decision was made, in sentences; the first has the inequality that decided.

    Parameters
    ----------
    step : Step
        A window, with its decision if there was one.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> sentences(run("ds2", apps.word_count(), steps=1)[0])[0]
    'count: one instance can do 29.8 k/s, 80 k/s arrive: 3.'
    >>> sentences(run("static", apps.word_count(), steps=1)[0])
    ('It never changes anything: every change is yours.',)
    """
    decision = step.decision
    if decision is None:
        return ("A change settles: nothing is decided in this window.",)
    why, before = decision.why, step.snapshot.deployment
    if (said := _rule(why)) is not None:
        return (said, *_left(why))
    told = _changed(why, before, decision.deployment, step.snapshot)
    if not told and decision.deployment == before:
        told = _kept(why, step.snapshot)
    told += _of_the_job(why)
    if not told and why:
        told = [_sentence(why_text(why))]
    return (*(told or ["It gives no reason."]), *_left(why))


def waits(step: Step) -> bool:
    """Return whether a policy did not look at a window: it settles, collects, or rests.

    Parameters
    ----------
    step : Step
        A window, with its decision if there was one.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> waits(run("dhalion", apps.word_count(), steps=1)[0])
    True
    """
    return step.decision is None or _rule(step.decision.why) is not None


def outlook(policy: Policy, knobs: frozenset[str] | None = None, length_s: float | None = None) -> str:
    """Return in one or two sentences what a policy will wait for, or why it cannot act; "" if nothing is special.

    Parameters
    ----------
    policy : Policy
        The policy.
    knobs : frozenset of str, optional
        The fields of a Deployment that the backend can change, if they are known.
    length_s : float, optional
        Length of the run in seconds.

    Examples
    --------
    >>> from dspkit.policies import FlinkAutoscaler
    >>> outlook(FlinkAutoscaler(), length_s=900)
    'It decides at t = 1,200 s at the earliest; this run is over at 900 s.'
    """
    needs = needs_of(policy)
    if knobs is not None and (missing := needs - knobs):
        return f"It cannot act here: it changes {_words(missing)}, and this backend cannot."
    if hasattr(policy, "ask") and getattr(policy, "trigger", None) is None:
        return "It waits for you: it acts when you press Scale out or Scale in."
    if not needs:
        return "It never changes anything: every change is yours."
    said = []
    if "parallelism" not in needs:
        said.append(f"It changes the {_words(needs)} only, never the number of instances.")
    values = {k.name: k.value for k in knobs_of(policy)}
    measured = ("running_s",) if "running_s" in values else ("warm_up_s", "metrics_window_s")  # a run has its warm-up
    earliest = sum(float(values.get(name) or 0.0) for name in measured)
    earliest = max(earliest, *(float(values.get(n) or 0.0) for n in ("decision_interval_s", "scale_out_after_s")))
    if length_s is not None and earliest >= length_s:
        said.append(f"It decides at t = {earliest:,.0f} s at the earliest; this run is over at {length_s:,.0f} s.")
    elif earliest >= 60:
        said.append(f"Its first decision comes at about t = {earliest:,.0f} s.")
    return " ".join(said)


def _words(names: frozenset[str]) -> str:
    shown = {"parallelism": "number of instances", "workers": "machines", "placement": "places of instances"}
    return " and ".join(sorted(shown.get(name, name) for name in names))


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"


def _rule(why: Mapping[str, Any]) -> str | None:
    """Return the sentence of a rule by which nothing was looked at, or None."""
    rule = why.get("rule", why.get("waits"))
    if not isinstance(rule, str):
        return None
    for pattern, said in _WAITING:
        if found := pattern.fullmatch(rule):
            return said.format(*found.groups())
    return None


def _left(why: Mapping[str, Any]) -> list[str]:
    """Return what was not carried out, and why."""
    kinds = {"refused": "Refused", "left out": "Left out", "withheld": "Withheld", "because": "Because"}
    return [f"{said}: {_sentence(str(why[key]))}" for key, said in kinds.items() if key in why]


def _number(mapping: Any, name: str) -> float | None:
    value = mapping.get(name) if isinstance(mapping, Mapping) else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _capacity(why: Mapping[str, Any], name: str) -> float | None:
    """Return the records/s that one instance can do, as the policy has them."""
    rates = next((why[key] for key in _CAPACITIES if key in why), None)
    return _number(rates, name)


def _demand(why: Mapping[str, Any], name: str) -> float | None:
    return _number(next((why[key] for key in _DEMAND if key in why), None), name)


def _facts(why: Mapping[str, Any], name: str, snapshot: Snapshot) -> list[str]:
    """Return the numbers by which a policy decided on one operator, as half sentences."""
    can, arrive = _capacity(why, name), _demand(why, name)
    if can is not None:
        arrive = _number(snapshot.demand, name) if arrive is None else arrive
        asked = "" if arrive is None else f", {si(arrive)}/s arrive"
        return [f"one instance can do {si(can)}/s{asked}"]
    found = []
    for key in _SHARES[:-1]:
        if (use := _number(why.get(key), name)) is not None:
            found.append(f"{use:.0%} of a core per instance is {'planned' if key == 'instance CPU' else 'in use'}")
            break
    if isinstance(states := why.get("state"), Mapping) and (load := _number(why.get("load"), name)) is not None:
        found.append(f"{load:.3g} times what it can do arrives ({states.get(name, 'unknown')})")
    waiting = [_number(why.get(key), name) for key in _QUEUES]
    found += [f"{si(records)} records wait" for records in waiting if records is not None]
    if (pressure := _number(why.get("back-pressure"), name)) is not None:
        found.append(f"back-pressure for {pressure:.0%} of the time")
    return found


def _measured(name: str, snapshot: Snapshot) -> list[str]:
    """Return what the window measured of an operator, for policies that tell no numbers."""
    metrics, arrive = snapshot.operators.get(name), _number(snapshot.demand, name)
    if metrics is None:
        return []
    can = "" if metrics.true_rate is None else f"one instance can do {si(metrics.true_rate)}/s, "
    asked = "" if arrive is None else f"{si(arrive)}/s arrive, "
    return [f"{can}{asked}busy {metrics.utilisation:.0%}"]


def _changed(why: Mapping[str, Any], before: Deployment, after: Deployment, snapshot: Snapshot) -> list[str]:
    """Return a sentence per operator that gets another number of instances."""
    told = []
    moved = {n: k for n, k in after.parallelism.items() if k != before.parallelism.get(n)}
    for name, k in list(moved.items())[:MOST_OPERATORS]:
        facts = _facts(why, name, snapshot) or _measured(name, snapshot)  # or else what was measured
        told.append(f"{name}: {', '.join(facts)}{': ' if facts else ''}{k}.")
    if len(moved) > MOST_OPERATORS:
        told.append(f"{len(moved) - MOST_OPERATORS} more operators change for the same reason.")
    return told


def _kept(why: Mapping[str, Any], snapshot: Snapshot) -> list[str]:
    """Return the inequality of the operator that is nearest to its limit, if the policy knows both sides."""
    worst: tuple[float, str] | None = None
    for name, metrics in snapshot.operators.items():
        can, arrive = _capacity(why, name), _demand(why, name)
        if can and arrive is not None:
            k = metrics.parallelism
            does = f"{k} instance{'s' if k > 1 else ''} can do {si(can * k)}/s, {si(arrive)}/s arrive"
            worst = max(worst or (0.0, ""), (arrive / (can * k), f"{name}: {does}"))
    if worst is None or not worst[1]:
        most: Mapping[str, Any] = next(
            (why[key] for key in (*_SHARES, *_QUEUES) if isinstance(why.get(key), Mapping) and why[key]), {}
        )
        named = [name for name in most if _number(most, name) is not None and _facts(why, name, snapshot)]
        if not named:
            return []
        name = max(named, key=lambda each: _number(most, each) or 0.0)
        return [f"{name}: {', '.join(_facts(why, name, snapshot))} (the most of all operators)."]
    kind = "nearest to its limit" if worst[0] <= 1 else "too few"
    return [f"{worst[1]} ({kind})."]


def _of_the_job(why: Mapping[str, Any]) -> list[str]:
    """Return sentences of what a policy says about the job as a whole."""
    told = []
    if isinstance(diagnosis := why.get("diagnosis"), str):
        told.append(_sentence(f"diagnosis: {diagnosis}"))
    for key, said in (
        ("score", "its benefit is {:.3g}"),
        ("moved share", "{:.0%} of the state moves"),
        ("traffic between nodes", "{:,.0f} records/s cross between machines"),
        ("ratio", "processing takes {:.3g} times its interval"),
        ("greatest CPU use", "the greatest CPU use is {:.0%}"),
    ):
        if isinstance(value := why.get(key), (int, float)) and not isinstance(value, bool):
            told.append(_sentence(said.format(value)))
    for key, said in (("granted", "Granted"), ("asked", "Asked for"), ("no data", "Not measured"), ("leave", "Leave")):
        if isinstance(value := why.get(key), (list, tuple)) and value:
            told.append(f"{said}: {', '.join(map(str, value))}.")
    late, target = why.get("latency"), why.get("target")
    if isinstance(late, (int, float)) and isinstance(target, (int, float)):
        told.append(f"Latency is {late:.3g} s, its target {target:.3g} s.")
    also = ("windows of activation", "machines", "slots", "status", "trigger", "executors", "bootstrap", "moves")
    told += [_sentence(why_text({key: why[key]})) for key in also if why.get(key) not in (None, "none")]
    rule = why.get("rule")
    if isinstance(rule, str) and not told:
        told.append(_sentence(rule))
    return told


@dataclass(frozen=True)
class Recording:
    """A run for the replay in a report: everything that the cockpit draws, as plain data.

    Parameters
    ----------
    data : mapping
        The graph, what is known of the run, its rows and its notes.
    summary : str
        The run in one sentence.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> found = Recording.of(run("ds2", apps.word_count(), steps=3), target_latency_s=0.5)
    >>> len(found.data["rows"]), found.data["head"]["target"]
    (3, 0.5)
    """

    data: Mapping[str, Any]
    summary: str

    @classmethod
    def of(cls, history: History, target_latency_s: float | None = None) -> Recording:
        """Return the recording of a run; of a long one every n-th window, and all with a decision.

        Parameters
        ----------
        history : History
            The run.
        target_latency_s : float, optional
            The latency to meet, in seconds.

        Examples
        --------
        >>> from dspkit import apps, run
        >>> Recording.of(run("static", apps.star(), steps=2)).data["head"]["windows"]
        2
        """
        every = -(-len(history) * len(history.topology.order) // MOST_RECORDED)
        last = len(history) - 1
        kept = [step for i, step in enumerate(history) if i % max(1, every) == 0 or step.rescaled or i == last]
        head = {
            "run": "1",
            "runs": [{"id": "1", "label": "this run"}],
            "windows": len(kept),
            "target": target_latency_s,
        }
        data = {
            "scene": scene(history.topology),
            "head": {**head, "lines": {}, "state": "finished"},
            "rows": _stretched([_row(step, history.topology) for step in kept]),
            "notes": notes(history),
        }
        return cls(data, tell(history, target_latency_s))


def _stretched(kept: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Let each row stand for the windows that were left out before it, so that sums over time stay right."""
    for before, row in pairwise(kept):
        row["dt"] = round(row["t"] - before["t"], 3)
    return kept


def scene(topology: Topology) -> dict[str, Any]:
    """Return the graph: operators with their places and bounds, and edges with their bends.

    Columns count from the left, rows from the middle, downwards.

    Parameters
    ----------
    topology : Topology
        The job.

    Examples
    --------
    >>> from dspkit import Topology
    >>> found = scene(Topology.chain("read", "count"))
    >>> [node["name"] for node in found["nodes"]], found["edges"]
    (['read', 'count'], [{'from': 0, 'to': 1, 'bends': []}])
    """
    place, bends = positions(topology)
    at = {name: i for i, name in enumerate(topology.order)}
    nodes = [
        {
            "name": name,
            "x": place[name][0],
            "y": -place[name][1],
            "kind": _kind(topology, name),
            "min": topology[name].min_parallelism,
            "max": topology[name].max_parallelism,
        }
        for name in topology.order
    ]
    edges = [{"from": at[u], "to": at[v], "bends": [[x, -y] for x, y in bends[u, v]]} for u, v in topology.edges]
    return {"nodes": nodes, "edges": edges}


def rows(history: History, start: int = 0, stop: int | None = None) -> list[dict[str, Any]]:
    """Return windows as rows; operators and edges are in the order of `scene`.

    Parameters
    ----------
    history : History
        The run.
    start, stop : int
        The first window, and the one after the last.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> row = rows(run("ds2", apps.word_count(), steps=2))[0]
    >>> row["t"], row["act"]["what"], row["ops"][2]["k"]
    (10.0, 'count 1 → 3, sink 1 → 3', 1)
    """
    return [_row(step, history.topology) for step in history.steps[start:stop]]


def notes(history: History, start: int = 0) -> list[dict[str, Any]]:
    """Return the changes by hand.

    Parameters
    ----------
    history : History
        The run.
    start : int
        How many of them to leave out.

    Examples
    --------
    >>> notes(History(Topology.chain("read", "count"), notes=[(10, "count 1 → 2, by hand")]))
    [{'t': 10.0, 'what': 'count 1 → 2, by hand'}]
    """
    return [{"t": round(t, 3), "what": what} for t, what in history.notes[start:]]


def why_pairs(step: Step) -> list[list[str]]:
    """Return all reasons of a decision, as names and texts.

    Parameters
    ----------
    step : Step
        A window.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> why_pairs(run("static", apps.word_count(), steps=1)[0])
    [['rule', 'keeps what runs']]
    """
    if step.decision is None:
        return []
    return [[key, why_text({key: value}).partition(": ")[2]] for key, value in step.decision.why.items()]


def _kind(topology: Topology, name: str) -> str:
    return "source" if not topology.upstream(name) else "operator" if topology.downstream(name) else "sink"


def _row(step: Step, topology: Topology) -> dict[str, Any]:
    s = step.snapshot
    row: dict[str, Any] = {
        "t": round(s.t, 3),
        "dt": round(s.window_s, 3),
        "in": _short(s.source_rate),
        "out": _short(s.throughput),
        "lag": _short(s.lag),
        "down": _short(s.downtime_s),
        "n": s.deployment.instances,
        "lat": None if s.latency is None else _shorts((s.latency.mean, s.latency.p50, s.latency.p95, s.latency.p99)),
        "ops": [_operator(step, name) for name in topology.order],
        "edges": [_short(s.edge_rates.get(edge)) for edge in topology.edges],
        "say": list(sentences(step)),
        "wait": waits(step),
    }
    if s.deployment.workers is not None:
        row["workers"] = s.deployment.workers
    if s.nodes or s.deployment.placement:
        row["places"] = _places(step)
    if s.delays:
        row["delays"] = [[a, b, _short(delay)] for (a, b), delay in s.delays.items()]
    if step.rescaled and step.decision is not None:
        row["act"] = {"what": changes(s.deployment, step.decision.deployment), "how": why_pairs(step)}
    return row


def _operator(step: Step, name: str) -> dict[str, Any]:
    s = step.snapshot
    found: dict[str, Any] = {"k": s.deployment.parallelism.get(name), "asked": _short(s.demand.get(name))}
    m = s.operators.get(name)
    if m is None:
        return found
    found |= {
        "k": m.parallelism,
        "in": _short(m.input_rate),
        "done": _short(m.processing_rate),
        "out": _short(m.output_rate),
        "can": _short(m.true_rate),
        "busy": _short(m.utilisation),
        "wait": _short(m.backlog),
        "blocked": _short(m.blocked),
        "cpu": _short(m.cpu),
        "dropped": _short(m.dropped) or None,
        "keys": _short(m.state_keys),
        "late": _short(m.late_rate),
    }
    if m.instances is not None and len(m.instances) <= MOST_INSTANCES:
        found["each"] = [_shorts((i.utilisation, i.processing_rate, i.backlog)) for i in m.instances]
    return {key: value for key, value in found.items() if value is not None}


def _places(step: Step) -> list[dict[str, Any]]:
    """Return the machines with the busy share of their cores, and the instances that are placed on them."""
    held: dict[str, dict[str, int]] = {node: {} for node in step.snapshot.nodes}
    for (operator, _), node in step.snapshot.deployment.placement.items():
        mine = held.setdefault(node, {})
        mine[operator] = mine.get(operator, 0) + 1
    return [{"node": node, "cpu": _short(step.snapshot.nodes.get(node)), "has": mine} for node, mine in held.items()]


def _shorts(values: Iterable[float | None]) -> list[float | int | None]:
    return [_short(value) for value in values]


def _short(value: float | None) -> float | int | None:
    """Return a number with four digits, or more if it is whole; None for what is not finite, which JSON has not.

    >>> _short(1234.567), _short(10.0), _short(float("inf")), _short(0.123456)
    (1235, 10, None, 0.1235)
    """
    if value is None or not isfinite(value):
        return None
    if value == int(value):
        return int(value)
    short = float(f"{value:.4g}")
    return int(short) if short == int(short) else short
