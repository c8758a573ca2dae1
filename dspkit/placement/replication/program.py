"""ODRP and EDRP as an integer linear program: (6.21)-(6.32), (8.12)-(8.23) [nardelli].

| here | thesis |
|---|---|
| columns: x, y, z, then t, r, then rho, t_D | x_(i,U); y_(i,j),(U,V); z_u, z_(u,v); r; rho and t_D of the elastic one |
| rows "and" | (6.27), (6.28) |
| rows "path", or "potential" | (6.22) for each path, or t_j >= t_i + d + R_j for each stream: equal, but few |
| rows "capacity", "once", "used" | (6.23), (6.26), (6.24)-(6.25) |

Binary x determines y, and z if each operator (stream) has its own row, so both are continuous: this program is tighter
and smaller than the thesis's, which `thesis=True` builds: all variables binary, z of all nodes and pairs with big M,
and paths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...core.typing import Array
from ..metrics import Limits, Objective
from ..solvers.integer_program import LinearProgram, Rows
from .options import Options, Pairs, listable


class Change(NamedTuple):
    """The downtime of each option, and that of operators which only restart because another one changes."""

    downtime_s: tuple[Array, ...]
    restart_s: float  # 0: an unchanged operator continues
    running: tuple[int | None, ...]  # the option that each operator runs as; None: it has to change

    def only(self, keep: list[Array]) -> Change:
        """Return the same for the options that the masks select."""
        at = [None if r is None or not k[r] else int(k[:r].sum()) for r, k in zip(self.running, keep, strict=True)]
        parts = tuple(s[k] for s, k in zip(self.downtime_s, keep, strict=True))
        return Change(parts, self.restart_s, tuple(at))


@dataclass(frozen=True, eq=False)
class ReplicaProgram(LinearProgram):
    """The program of a problem with replication, with its options."""

    options: Options

    def deployment(self, z: Array) -> Array:
        """Return the counts of the largest x of each operator."""
        firsts = np.cumsum([0, *map(len, self.options.counts)])
        return self.options.chosen([int(z[a:b].argmax()) for a, b in zip(firsts, firsts[1:], strict=False)])


class _Builder:
    def __init__(self, options: Options, objective: Objective, limits: Limits, thesis: bool):
        self.options, self.objective, self.limits, self.thesis = options, objective, limits, thesis
        self.app, self.net = options.problem.application, options.problem.network
        self.rows, self.columns = Rows(), 0
        self.cost: list[Array] = []
        self.upper: list[Array] = []
        self.x = [self.add(objective.cost * price, 1.0) for price in options.price]
        self.y: list[
            tuple[Pairs, Array, Array]
        ] = []  # of each stream: its pairs, y of each pair, mask of the feasible pairs

    def add(self, cost: Array, upper: float) -> Array:
        """Add columns; return their indices."""
        made = np.arange(self.columns, self.columns + len(cost))
        self.columns += len(cost)
        self.cost.append(np.asarray(cost, np.float64))
        self.upper.append(np.full(len(cost), upper))
        return made

    def placement(self) -> None:
        for x in self.x:
            self.rows.add([(0, x, 1.0)], 1, 1.0, 1.0)
        for u, capacity in enumerate(self.net.capacity):
            asked = zip(self.x, self.options.counts, self.app.demand, strict=True)
            self.rows.add([(0, x, c[:, u] * d) for x, c, d in asked], 1, -np.inf, capacity * (1 + 1e-9) + 1e-9)

    def streams(self) -> None:
        price, weight, metric = self.objective.cost, self.objective.network, self.objective.metric
        for s in range(len(self.app.ends)):
            pairs = Pairs(self.options, s)
            may = np.isfinite(pairs.delay_s)
            cost = price * pairs.price + (weight * pairs.network_metric(metric) if weight else 0.0)
            y = np.full(may.shape, -1)
            y[may] = self.add(cost[may], 1.0)
            self.y.append((pairs, y, may))
            for axis, end in ((0, pairs.i), (1, pairs.j)):
                x, at = self.x[end], np.nonzero(may)[axis]
                self.rows.add([(np.arange(len(x)), x, 1.0), (at, y[may], -1.0)], len(x), 0.0, 0.0)
        total = self.app.rate_per_s.sum()
        for u, v in np.argwhere(self.net.bandwidth_per_s < total * (1 - 1e-12)).tolist():
            entries = [(0, y[may], pairs.carried(u, v)[may]) for pairs, y, may in self.y]
            width = self.net.bandwidth_per_s[u, v] * (1 + 1e-9) + 1e-9
            self.rows.add(entries, 1, -np.inf, width)

    def used(self) -> None:
        """Add z: a used node or link adds its availability once, however many operators or streams use it."""
        weight, log_a, log_l = (
            self.objective.log_availability,
            np.log(self.net.availability),
            np.log(self.net.link_availability),
        )
        size = len(log_a)
        nodes = range(size) if self.thesis else np.flatnonzero((weight != 0) & (log_a < 0)).tolist()
        links = np.ones((size, size), bool) if self.thesis else (weight != 0) & (log_l < 0)
        for u in nodes:
            users = [x[c[:, u] > 0] for x, c in zip(self.x, self.options.counts, strict=True)]
            self._at_least_once(float(weight * log_a[u]), users)
        for u, v in np.argwhere(links).tolist():
            self._at_least_once(float(weight * log_l[u, v]), [y[pairs.linked(u, v) & may] for pairs, y, may in self.y])

    def _at_least_once(self, cost: float, users: list[Array]) -> None:
        z = self.add(np.array([cost]), 1.0)
        if self.thesis:
            self.rows.add([(0, z, float(len(users))), *((0, u, -1.0) for u in users)], 1, 0.0, np.inf)
            return
        for mine in users:
            self.rows.add([(0, z, 1.0), (0, mine, -1.0)], 1, 0.0, np.inf)

    def response(self, paths: bool) -> None:
        """Add the rows that keep r above every path; r is in units of the loss, for the solver's tolerances."""
        weight, most = self.objective.response, self.limits.response_s
        if not (weight or math.isfinite(most) or self.thesis):
            return
        unit = max(weight, 1 / most) or 1.0
        app = self.app
        stream = {(pairs.i, pairs.j): s for s, (pairs, _, _) in enumerate(self.y)}

        def works(i: int) -> tuple[Any, Any, Any]:
            return 0, self.x[i], -unit * self.options.times_s[i]

        def travels(i: int, j: int) -> tuple[Any, Any, Any]:
            pairs, y, may = self.y[stream[i, j]]
            return 0, y[may], -unit * pairs.delay_s[may]

        ready = [] if paths else [self.add(np.zeros(1), np.inf) for _ in app.operators]
        r = self.add(np.array([weight / unit]), unit * most * (1 + 1e-9))
        for path in app.paths(most=app.path_count) if paths else ():
            steps = [travels(i, j) for i, j in zip(path, path[1:], strict=False)]
            self.rows.add([(0, r, 1.0), *map(works, path), *steps], 1, 0.0, np.inf)
        for i, mine in enumerate(ready):
            if not app.upstream[i]:
                self.rows.add([(0, mine, 1.0), works(i)], 1, 0.0, np.inf)
            for j in app.upstream[i]:
                self.rows.add([(0, mine, 1.0), (0, ready[j], -1.0), works(i), travels(j, i)], 1, 0.0, np.inf)
            if not app.downstream[i]:
                self.rows.add([(0, r, 1.0), (0, mine, -1.0)], 1, 0.0, np.inf)

    def price_limit(self) -> None:
        """Add C(x, y) <= C_max (8.16)."""
        if math.isfinite(most := self.limits.cost):
            unit = 1 / max(most, 1e-9)
            entries = [(0, x, unit * price) for x, price in zip(self.x, self.options.price, strict=True)]
            entries += [(0, y[may], unit * pairs.price[may]) for pairs, y, may in self.y]
            self.rows.add(entries, 1, -np.inf, unit * most * (1 + 1e-9) + 1e-9)

    def downtime(self, change: Change) -> None:
        """Add t_D, above every operator's downtime, and above the restart of all if any changes: rho (8.14), (8.17)."""
        weight, most = self.objective.downtime, self.limits.downtime_s
        unit = max(weight, 1 / most) or 1.0
        t = self.add(np.array([weight / unit]), unit * most * (1 + 1e-9))
        for x, seconds in zip(self.x, change.downtime_s, strict=True):
            self.rows.add([(0, t, 1.0), (0, x, -unit * seconds)], 1, 0.0, np.inf)
        if change.restart_s > 0:
            rho = self.add(np.zeros(1), 1.0)
            self.rows.add([(0, t, 1.0), (0, rho, -unit * change.restart_s)], 1, 0.0, np.inf)
            for x, runs in zip(self.x, change.running, strict=True):
                kept = [] if runs is None else [(0, x[runs : runs + 1], 1.0)]
                self.rows.add([(0, rho, 1.0), *kept], 1, 1.0, np.inf)


def replica_program(
    options: Options,
    objective: Objective,
    *,
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    change: Change | None = None,
    paths: bool | None = None,
    thesis: bool = False,
) -> ReplicaProgram:
    """Return the program; `paths` chooses (6.22) with one row per path (the default up to 1,000) or potentials."""
    listable(options)
    made = _Builder(options, objective, limits, thesis)
    made.placement()
    made.streams()
    made.used()
    binaries = made.columns if thesis else sum(map(len, made.x))
    made.response(thesis or (made.app.path_count <= 1_000 if paths is None else paths))
    made.price_limit()
    if change is not None:
        made.downtime(change)
    program = made.rows.program(made.cost, made.upper, binaries, objective.constant)
    return ReplicaProgram(**vars(program), options=options)
