r"""The self-adaptive graph: replicas by thresholds, and ahead of time by a Markov chain of each operator's states.

    | paper | here |
    |---|---|
    | $t_w$ | the snapshot's window |
    | $A$, $p_1$, $n$, $L = A/(n\,p_1)$ | events that arrived, what one replica does, replicas, load |
    | $t_s$, $t_m$ | `short_s`, `mid_s` |
    | $S$, $W$ | `margin`, `windows` |
    | $R$, $R'$ | `replicas`, `mid_replicas` |

Readings not taken by default: the backlog as part of the load (`count_backlog`), S as a ratio (`margin_rule`), a run
of W windows that goes on after it acted (`restart=False`), a chain solved by iteration (`solver`). Kept as printed:
an operator that is overloaded now gets R' at each mid-term tick, because a failed prediction returns its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, OperatorMetrics, Snapshot, Topology
from ..errors import KnobError
from ..frozen import FrozenMap
from ..knobs import Knobs, knob
from ..predict import markov

NAMES = ("underloaded", "balanced", "overloaded")
U, B, O = markov.U, markov.B, markov.O


class Seen(NamedTuple):
    """What is known of one operator."""

    p1: float | None = None  # events/s that one replica does
    came: float = 0.0  # events since the last short-term tick
    replica_s: float = 0.0  # time that its replicas had for them, together
    history: bytes = b""  # states of the last samples, oldest first
    state: int | None = None  # by the last short-term window
    run: int = 0  # short-term windows in this state, one after the other


class State(NamedTuple):
    topology: Topology
    ticks: tuple[int, int] = (0, 0)  # short-term and mid-term ticks so far
    operators: Mapping[str, Seen] = FrozenMap()


@dataclass(frozen=True)
class Fission(Knobs):
    r"""R replicas more after W overloaded windows, R' more where a Markov chain expects overload; fewer likewise.

    The load is $L = A/(n\,p_1)$: events that arrived over what n replicas can do. Above `upper` an operator is
    overloaded, below `lower` underloaded. Each `mid_s` seconds the stationary distribution $e\,TM = e$ of its states
    names the likeliest; it is expected if it beats the current one by `margin`.
    """

    name: ClassVar[str] = "fission"
    reference: ClassVar[str] = "fission"
    upper: float = knob(
        1.0, "load above which an operator is overloaded", low=0.1, high=2.0, source="Table 1", line="busy"
    )
    lower: float = knob(0.5, "load below which it is underloaded", low=0.0, high=1.0, source="Table 1", line="busy")
    replicas: int = knob(1, "R: replicas added or removed by the short-term rule", low=0, high=20, source="Table 1")
    windows: int = knob(2, "W: short-term windows in one state before it acts", low=1, high=20, source="Table 1")
    mid_replicas: int = knob(5, "R': replicas added or removed by the mid-term rule", low=0, high=20, source="Table 1")
    short_s: float = knob(5.0, "t_s: time between short-term decisions", low=1.0, high=60.0, unit="s", source="Table 1")
    mid_s: float = knob(100.0, "t_m: time between predictions", low=10.0, high=600.0, unit="s", source="Table 1")
    margin: float = knob(
        0.2, "S: by how much the likeliest state beats the current", low=0.0, high=1.0, source="Table 1"
    )
    mid_term: bool = knob(True, "predict as well; off, thresholds alone decide", choices=(True, False))
    count_backlog: bool = knob(False, "what waits is part of the load; not so in the paper", choices=(True, False))
    margin_rule: str = knob("additive", "S as a difference or a ratio", choices=("additive", "relative"))
    restart: bool = knob(True, "count W windows anew after acting", choices=(True, False))
    solver: str = knob("exact", "stationary distribution: exact, or the paper's", choices=("exact", "iteration"))
    iterations: int = knob(100, "of the iteration; the paper names no number", low=1, high=10_000)
    most: int = knob(4096, "most replicas of an operator; the paper has no limit", low=1, high=4096)
    capacity: str = knob(
        "first",
        "p1: what one replica did when first seen, or lately",
        choices=("first", "latest"),
        source="benchmarked once",
    )
    events_per_s: Mapping[str, float] = field(default_factory=FrozenMap)  # p1 where it is known beforehand

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lower >= self.upper:
            raise KnobError(f"lower={self.lower}, upper={self.upper}", expected="lower < upper", fix="move them apart")
        if not isinstance(self.events_per_s, Mapping):
            raise KnobError(
                f"events_per_s={self.events_per_s!r:.60}", expected="a rate by operator", fix='as in {"count": 106.5}'
            )
        for name, rate in self.events_per_s.items():
            if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < float("inf"):
                raise KnobError(f"events_per_s of {name!r}: {rate!r}", expected="a rate above 0", fix="benchmark it")
        object.__setattr__(self, "events_per_s", FrozenMap(self.events_per_s))

    def init(self, topology: Topology, seed: int = 0) -> State:
        if unknown := set(self.events_per_s) - set(topology.order):
            raise KnobError(
                f"events_per_s of {sorted(unknown)}", expected=f"some of {list(topology.order)}", fix="correct the name"
            )
        return State(topology)

    def step(self, state: State, snapshot: Snapshot) -> tuple[State, Decision]:
        ticks = tuple(floor(snapshot.t / period + 1e-9) for period in (self.short_s, self.mid_s))
        short, mid = ticks[0] != state.ticks[0], self.mid_term and ticks[1] != state.ticks[1]
        seen = {
            n: self._sample(n, state.operators.get(n, Seen()), snapshot.operators.get(n), snapshot)
            for n in state.topology.order
        }
        loads = {n: _load(s.came, s.replica_s, s.p1) for n, s in seen.items()}
        if short:
            seen = {n: self._classify(s, loads[n]) for n, s in seen.items()}
        expected = self._predict(seen, snapshot.window_s) if mid else {}
        now, wanted = snapshot.deployment.parallelism, {}
        why: dict[str, Any] = {}
        for name in seen:
            change, seen[name], rule = self._manage(seen[name], expected.get(name), short)
            after = min(max(1, now[name] + change), self.most) if change else now[name]
            if after != now[name]:
                wanted[name] = after
                why.setdefault(rule, {})[name] = f"{change:+d}"
        if short:
            why["load"] = {n: round(load, 4) for n, load in loads.items() if load is not None}
            why["state"] = {n: NAMES[s.state] for n, s in seen.items() if s.state is not None}
        if expected:
            why["expected"] = {n: NAMES[state] for n, (state, _) in expected.items()}
            why["chance of U, B, O"] = {n: [round(p, 4) for p in e] for n, (_, e) in expected.items()}
        target = snapshot.deployment.scaled(state.topology.clip({**now, **wanted})) if wanted else snapshot.deployment
        return State(state.topology, (ticks[0], ticks[1]), FrozenMap(seen)), Decision(
            target, why or {"rule": "measures"}
        )

    def _sample(self, name: str, seen: Seen, metrics: OperatorMetrics | None, snapshot: Snapshot) -> Seen:
        """The monitor: one window's events and capacity; a silent operator, or one never seen at work, has none."""
        if metrics is None:
            return seen
        p1 = self.events_per_s.get(name) or seen.p1
        if metrics.true_rate and name not in self.events_per_s and (p1 is None or self.capacity == "latest"):
            p1 = metrics.true_rate
        came = metrics.input_rate * snapshot.window_s + (metrics.backlog if self.count_backlog else 0.0)
        replica_s = metrics.parallelism * snapshot.window_s
        load, history = _load(came, replica_s, p1), seen.history
        if load is not None:
            history = (history + bytes([self._state(load)]))[-self._samples(snapshot.window_s) :]
        return seen._replace(p1=p1, came=seen.came + came, replica_s=seen.replica_s + replica_s, history=history)

    def _samples(self, window_s: float) -> int:
        return max(2, ceil(self.mid_s / window_s - 1e-9))

    def _state(self, load: float) -> int:
        """Algorithm 1, strict on both sides."""
        return O if load > self.upper else U if load < self.lower else B

    def _classify(self, seen: Seen, load: float | None) -> Seen:
        """The analyser's short term: the load of all samples since the last tick together."""
        if load is None:
            return seen._replace(came=0.0, replica_s=0.0, state=None, run=0)
        state = self._state(load)
        run = seen.run + 1 if state == seen.state else 1
        return seen._replace(came=0.0, replica_s=0.0, state=state, run=run)

    def _predict(self, seen: Mapping[str, Seen], window_s: float) -> dict[str, tuple[int, list[float]]]:
        """The analyser's mid term, of all operators with a full history at once: what is expected, and e."""
        full = self._samples(window_s)
        names = [n for n, s in seen.items() if len(s.history) == full and s.state is not None]
        if not names:
            return {}
        matrix = markov.transition_matrix([list(seen[n].history) for n in names])
        e = markov.stationary(matrix) if self.solver == "exact" else markov.iterate(matrix, self.iterations)
        chosen = markov.choose(e, [seen[n].state for n in names], self.margin, self.margin_rule)
        return {n: (int(c), p) for n, c, p in zip(names, chosen, e.tolist(), strict=True)}

    def _manage(self, seen: Seen, expected: tuple[int, list[float]] | None, short: bool) -> tuple[int, Seen, str]:
        """The replica manager (Algorithm 3): the mid term goes first, and where it acts the short term is skipped."""
        if expected is not None and expected[0] != B:
            return (self.mid_replicas if expected[0] == O else -self.mid_replicas), seen._replace(run=0), "mid-term"
        if short and seen.state in (U, O) and seen.run >= self.windows:
            change = self.replicas if seen.state == O else -self.replicas
            return change, seen._replace(run=0) if self.restart else seen, "short-term"
        return 0, seen, ""


def _load(came: float, replica_s: float, p1: float | None) -> float | None:
    """L = A / (n p1), the sums over several samples; without events it is 0 whatever p1 is, else unknown without p1."""
    if replica_s <= 0 or (came and p1 is None):
        return None
    return came / (replica_s * p1) if p1 else 0.0
