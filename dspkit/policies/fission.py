r"""The self-adaptive graph: replicas by thresholds, and in advance by a Markov chain of operators' states [fission].

| paper | here |
|---|---|
| $t_w$ | the snapshot's window |
| $A$, $p_1$, $n$, $L = A/(n\,p_1)$ | arrived events, rate of one replica, replicas, load |
| $t_s$, $t_m$ | `decision_interval_s`, `mid_term_interval_s` |
| $S$, $W$ | `margin`, `windows` |
| $R$, $R'$ | `replicas`, `mid_replicas` |

Readings not taken by default: the backlog as part of the load (`count_backlog`), S as a ratio (`margin_rule`), a count
of W windows that continues after an action (`restart=False`), a chain solved by iteration (`solver`). Kept as printed:
an operator that is overloaded now gets R' at each mid-term tick, because a failed prediction returns its state.

On S4 queues drop, so that A shows the load. Under back-pressure A would be what the operator takes, and L never above
1: there the load is what would arrive without it (`load="arrivals"` is the paper's), and p1 the latest rate of a
replica, as the first windows of a live job are its slowest (`capacity`), reduced by the time that replicas lose at
commits (`commits`). If the snapshot has instances, the fullest
replica decides: its share of what the operator processed takes the place of 1/n.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Any, ClassVar, NamedTuple

from ..core import ArgumentError, Decision, FrozenMap, PolicyKnobs, Snapshot, Topology, knob
from ..core.validation import mapping, number
from ..etp import held_back
from ..forecasting import markov
from ._measurements import Attained, arrivals, commits_knob, load_knob, shares

NAMES = ("underloaded", "balanced", "overloaded")
U, B, O = markov.U, markov.B, markov.O


class OperatorHistory(NamedTuple):
    """The measurements of one operator."""

    p1: float | None = None  # events/s that one replica processes
    events: float = 0.0  # events since the last short-term tick
    replica_s: float = 0.0  # total time of its replicas since then; if they differ, that of as many as the fullest
    history: bytes = b""  # states of the last samples, oldest first
    state: int | None = None  # state in the last short-term window
    run: int = 0  # consecutive short-term windows in this state


class FissionState(NamedTuple):
    """The ticks so far, and the measurements of each operator."""

    topology: Topology
    ticks: tuple[int, int] = (0, 0)  # short-term and mid-term ticks so far
    operators: Mapping[str, OperatorHistory] = FrozenMap()
    attained: Attained = Attained()


@dataclass(frozen=True)
class Fission(PolicyKnobs):
    r"""Add R replicas after W overloaded windows, R' if a Markov chain predicts overload; remove them likewise.

    The load is $L = A/(n\,p_1)$: arrived events over the capacity of n replicas. Above `scale_out_above` an operator is
    overloaded, below `scale_in_below` underloaded. Every `mid_term_interval_s` seconds the stationary distribution
    $e\,TM = e$ of its states gives the most likely one, which is predicted if it beats the current one by `margin`.

    Parameters
    ----------
    events_per_s : mapping
        Events/s of one replica by operator, if they are known in advance.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> run(Fission(), apps.word_count(), steps=12)[-1].decision.why["state"]["sink"] in ("balanced", "underloaded")
    True
    """

    name: ClassVar[str] = "fission"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[str] = "fission"
    paper_run_s: ClassVar[float] = 600.0
    scale_out_above: float = knob(
        1.0,
        "load above which an operator is overloaded",
        low=0.1,
        high=2.0,
        source="upper threshold, Table 1",
        line="busy",
    )
    scale_in_below: float = knob(
        0.5, "load below which it is underloaded", low=0.0, high=1.0, source="lower threshold, Table 1", line="busy"
    )
    replicas: int = knob(1, "R: replicas added or removed by the short-term rule", low=0, high=20, source="Table 1")
    windows: int = knob(2, "W: short-term windows in one state before it acts", low=1, high=20, source="Table 1")
    mid_replicas: int = knob(5, "R': replicas added or removed by the mid-term rule", low=0, high=20, source="Table 1")
    decision_interval_s: float = knob(
        5.0, "time between short-term decisions", low=1.0, high=60.0, unit="s", pace="duration", source="t_s, Table 1"
    )
    mid_term_interval_s: float = knob(
        100.0, "time between predictions", low=10.0, high=600.0, unit="s", pace="duration", source="t_m, Table 1"
    )
    margin: float = knob(
        0.2, "S: by how much the most likely state must beat the current one", low=0.0, high=1.0, source="Table 1"
    )
    mid_term: bool = knob(True, "use predictions in addition to thresholds", choices=(True, False))
    count_backlog: bool = knob(False, "the backlog is part of the load, unlike in the paper", choices=(True, False))
    margin_rule: str = knob("additive", "S as a difference or a ratio", choices=("additive", "relative"))
    restart: bool = knob(True, "restart the count of W windows after an action", choices=(True, False))
    solver: str = knob("exact", "stationary distribution: exact, or the paper's", choices=("exact", "iteration"))
    iterations: int = knob(100, "steps of the iteration; the paper states no number", low=1, high=10_000)
    max_parallelism: int = knob(4096, "most replicas of an operator; the paper has no limit", low=1, high=4096)
    capacity: str = knob(
        "auto",
        "p1: first or latest measured rate of one replica; auto: the first, the latest under back-pressure",
        choices=("auto", "first", "latest"),
        source="benchmarked once",
    )
    load: str = load_knob()
    commits: str = commits_knob()
    events_per_s: Mapping[str, float] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        super().__post_init__()
        mapping(self.events_per_s, "events_per_s", "a rate by operator", fix='as in {"count": 106.5}')
        for name, rate in self.events_per_s.items():
            number(rate, f"events_per_s of {name!r}", 0, above=True, fix="measure what an instance processes")
        object.__setattr__(self, "events_per_s", FrozenMap(self.events_per_s))

    def init(self, topology: Topology, seed: int = 0) -> FissionState:
        """Return the initial state, as described in `dspkit.Policy`."""
        if unknown := set(self.events_per_s) - set(topology.order):
            raise ArgumentError(
                f"events_per_s of {sorted(unknown)}",
                expected=f"some of {list(topology.order)}",
                fix="name operators of the topology",
            )
        return FissionState(topology)

    def step(self, state: FissionState, snapshot: Snapshot) -> tuple[FissionState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        ticks = tuple(
            floor(snapshot.t / period + 1e-9) for period in (self.decision_interval_s, self.mid_term_interval_s)
        )
        short, mid = ticks[0] != state.ticks[0], self.mid_term and ticks[1] != state.ticks[1]
        arriving, pressed = arrivals(snapshot, self.load), held_back(snapshot)
        attained = state.attained.after(snapshot)
        share = attained.share if self.commits == "measured" else 1.0
        seen = {
            n: self._sample(
                n, state.operators.get(n, OperatorHistory()), snapshot, arriving.get(n, 0.0), pressed, share
            )
            for n in state.topology.order
        }
        loads = {n: _load(s.events, s.replica_s, s.p1, share) for n, s in seen.items()}
        if short:
            seen = {n: self._classify(s, loads[n]) for n, s in seen.items()}
        expected = self._predict(seen, snapshot.window_s) if mid else {}
        now, wanted = snapshot.deployment.parallelism, {}
        why: dict[str, Any] = {}
        for name in seen:
            change, seen[name], rule = self._manage(seen[name], expected.get(name), short)
            after = min(max(1, now[name] + change), self.max_parallelism) if change else now[name]
            if after != now[name]:
                wanted[name] = after
                why.setdefault(rule, {})[name] = f"{change:+d}"
        if share < 1:
            why["busy at most"] = round(share, 4)
        if short:
            why["load"] = {n: round(load, 4) for n, load in loads.items() if load is not None}
            why["state"] = {n: NAMES[s.state] for n, s in seen.items() if s.state is not None}
        if expected:
            why["expected"] = {n: NAMES[state] for n, (state, _) in expected.items()}
            why["chance of U, B, O"] = {n: [round(p, 4) for p in e] for n, (_, e) in expected.items()}
        target = snapshot.deployment.scaled(state.topology.clip({**now, **wanted})) if wanted else snapshot.deployment
        new = FissionState(state.topology, (ticks[0], ticks[1]), FrozenMap(seen), attained)
        return new, Decision(target, why or {"rule": "measures"})

    def _sample(
        self, name: str, seen: OperatorHistory, snapshot: Snapshot, arriving: float, pressed: bool, share: float
    ) -> OperatorHistory:
        """Add one window's events and capacity; an operator without metrics or without a known rate has no state."""
        if (metrics := snapshot.operators.get(name)) is None:
            return seen
        p1 = self.events_per_s.get(name) or seen.p1
        anew = p1 is None or self.capacity == "latest" or (self.capacity == "auto" and pressed)
        if metrics.true_rate and name not in self.events_per_s and anew:
            p1 = metrics.true_rate
        arrived = arriving * snapshot.window_s + (metrics.backlog if self.count_backlog else 0.0)
        replica_s = snapshot.window_s / max(shares(metrics))
        load, history = _load(arrived, replica_s, p1, share), seen.history
        if load is not None:
            history = (history + bytes([self._state(load)]))[-self._samples(snapshot.window_s) :]
        return seen._replace(p1=p1, events=seen.events + arrived, replica_s=seen.replica_s + replica_s, history=history)

    def _samples(self, window_s: float) -> int:
        return max(2, ceil(self.mid_term_interval_s / window_s - 1e-9))

    def _state(self, load: float) -> int:
        """Return the state by Algorithm 1, strict on both sides."""
        return O if load > self.scale_out_above else U if load < self.scale_in_below else B

    def _classify(self, seen: OperatorHistory, load: float | None) -> OperatorHistory:
        """Determine the short-term state from the load of all samples since the last tick."""
        if load is None:
            return seen._replace(events=0.0, replica_s=0.0, state=None, run=0)
        state = self._state(load)
        run = seen.run + 1 if state == seen.state else 1
        return seen._replace(events=0.0, replica_s=0.0, state=state, run=run)

    def _predict(self, seen: Mapping[str, OperatorHistory], window_s: float) -> dict[str, tuple[int, list[float]]]:
        """Return the predicted state and e of all operators with a full history."""
        full = self._samples(window_s)
        names = [n for n, s in seen.items() if len(s.history) == full and s.state is not None]
        if not names:
            return {}
        matrix = markov.transition_matrix([list(seen[n].history) for n in names])
        e = markov.stationary(matrix) if self.solver == "exact" else markov.iterate(matrix, self.iterations)
        chosen = markov.choose(e, [seen[n].state for n in names], self.margin, self.margin_rule)
        return {n: (int(c), p) for n, c, p in zip(names, chosen, e.tolist(), strict=True)}

    def _manage(
        self, seen: OperatorHistory, expected: tuple[int, list[float]] | None, short: bool
    ) -> tuple[int, OperatorHistory, str]:
        """Return the change of Algorithm 3; the mid term has priority, and suppresses the short term if it acts."""
        if expected is not None and expected[0] != B:
            return (self.mid_replicas if expected[0] == O else -self.mid_replicas), seen._replace(run=0), "mid-term"
        if short and seen.state in (U, O) and seen.run >= self.windows:
            change = self.replicas if seen.state == O else -self.replicas
            return change, seen._replace(run=0) if self.restart else seen, "short-term"
        return 0, seen, ""


def _load(arrived: float, replica_s: float, p1: float | None, share: float) -> float | None:
    """Return L = A / (n p1 share) over several samples: 0 without events, None without p1."""
    if replica_s <= 0 or (arrived and p1 is None):
        return None
    return arrived / (replica_s * p1 * share) if p1 else 0.0
