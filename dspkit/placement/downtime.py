"""How long an application stands still while replicas come, go and move: appendix 8.A of the thesis [nardelli].

| here | thesis |
|---|---|
| `state_bytes`, `code_bytes` | I_S,i and I_C,i |
| `to_store_s`, `from_store_s` | d_(x,DS), d_(DS,x): delays to and from the store of code and state |
| `upload_bytes_per_s`, `download_bytes_per_s` | r_(x,DS), r_(DS,x) |
| `swap_out_bytes_per_s`, `swap_in_bytes_per_s` | r_(x,LS), r_(LS,x): a node's own disk, Storm only |
| `spawn_s`, `sync_s` | t_s,u and t_syn |
| `operator_s`, `restart_s`, `of` | t_D(i, U, V), t_D,R(i, U), T_D |

`model="general"`: each operator moves by itself, only the state that changes its node moves, nodes spawn their replicas
at once. `model="storm"`: any change restarts the whole application; an operator that changes moves all its state; a
node spawns one replica after the other.

A state whose size is 0 moves in no time (`zero_transfer="rtt"`: in a round trip, as printed). `upload_form="printed"`
lets nodes upload more than they own where a scale-out also removes a replica. (8.25) prints scale-out and scale-in
swapped: they are not, here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..errors import PlacementError
from .arrays import vector
from .replica_problem import ReplicaProblem, Replicas

Array = np.ndarray[Any, Any]
CHOICES = {"model": ("general", "storm"), "upload_form": ("kept", "printed"), "zero_transfer": ("free", "rtt")}


class Running(NamedTuple):
    """What runs: replicas on nodes that are still there, and which operators lost some with a node that is gone."""

    counts: Replicas
    lost: Array


@dataclass(frozen=True, eq=False)
class Downtime:
    """What a change costs; numbers are one for all, one each in order, or a mapping by name."""

    problem: ReplicaProblem
    state_bytes: Any = 0.0
    code_bytes: Any = 300e3
    to_store_s: Any = 0.005
    from_store_s: Any = 0.005
    upload_bytes_per_s: Any = 12.5e6
    download_bytes_per_s: Any = 12.5e6
    swap_out_bytes_per_s: Any = math.inf
    swap_in_bytes_per_s: Any = math.inf
    spawn_s: Any = 0.5
    sync_s: float = 0.25
    model: str = "general"
    upload_form: str = "kept"
    zero_transfer: str = "free"

    def __post_init__(self) -> None:
        if not isinstance(self.problem, ReplicaProblem):
            raise PlacementError(
                repr(self.problem)[:80], expected="a ReplicaProblem", fix="see placement.ReplicaProblem"
            )
        for name, choices in CHOICES.items():
            if (came := getattr(self, name)) not in choices:
                raise PlacementError(f"{name} {came!r}", expected=f"one of {choices}", fix="correct the name")
        operators, nodes = self.problem.problem.application.operators, self.problem.problem.network.nodes
        for name in ("state_bytes", "code_bytes"):
            object.__setattr__(self, name, vector(getattr(self, name), operators, name, low=0.0))
        for name in ("to_store_s", "from_store_s", "spawn_s"):
            object.__setattr__(self, name, vector(getattr(self, name), nodes, name, low=0.0))
        for name in ("upload", "download", "swap_out", "swap_in"):
            name += "_bytes_per_s"
            made = vector(getattr(self, name), nodes, name, low=0.0, high=math.inf, open_low=True)
            object.__setattr__(self, name, made)
        object.__setattr__(self, "sync_s", float(vector(self.sync_s, ("sync",), "sync_s", low=0.0)[0]))

    def running(self, deployment: Any) -> Running:
        """What runs, from {operator: nodes} or counts; nodes that the network no longer has are lost."""
        if isinstance(deployment, Running):
            return deployment
        size = len(self.problem.problem.application.operators)
        if not isinstance(deployment, Mapping):
            return Running(self.problem.deploy(deployment), np.zeros(size, bool))
        known = self.problem.problem.network.index
        counts, lost = [], []
        for operator in self.problem.problem.application.operators:
            where = deployment.get(operator, ())
            nodes = where if isinstance(where, (list, tuple)) else (where,)
            if not nodes or any(not isinstance(n, str) for n in nodes):
                raise PlacementError(
                    f"{operator!r} running on {where!r}", expected="a node for each replica", fix="say where it runs"
                )
            row = [nodes.count(n) for n in known]
            counts.append(row)
            lost.append(sum(row) < len(nodes))
        if unknown := set(deployment) - set(self.problem.problem.application.operators):
            raise PlacementError(f"{min(unknown, key=str)!r} running", expected="an operator", fix="leave it out")
        return Running(np.array(counts, np.int64), np.array(lost))

    def moved_bytes(self, i: int, old: Array, new: Array) -> tuple[Array, Array]:
        """What each node uploads and downloads of operator i's state (8.30)-(8.33)."""
        u, v = int(old.sum()), new.sum(axis=-1, keepdims=True)
        if self.model == "storm":
            return np.broadcast_to(self.state_bytes[i] * old / max(u, 1), new.shape), self.state_bytes[i] * new / v
        came, went, stayed = np.maximum(new - old, 0), np.maximum(old - new, 0), np.minimum(old, new)
        up, down = went / max(u, 1), came / v
        if u:
            kept = old if self.upload_form == "printed" else stayed
            up = up + kept * np.maximum(v - u, 0) / (u * v)
            down = down + stayed * np.maximum(u - v, 0) / (u * v)
        return self.state_bytes[i] * up, self.state_bytes[i] * down

    def operator_s(self, i: int, old: Array, new: Array, *, lost: bool = False, hosts: Array | None = None) -> float:
        """t_D(i, U, V) of two rows of counts; `hosts`: nodes that have Storm's code; `lost`: some replicas are gone."""
        return float(self.operators_s(i, old, np.asarray(new)[None], lost=lost, hosts=hosts)[0])

    def operators_s(self, i: int, old: Array, rows: Array, *, lost: bool = False, hosts: Array | None = None) -> Array:
        """The same of many new rows of counts at once."""
        storm = self.model == "storm"
        up, down = (self._transfer(*m) for m in zip(("up", "down"), self.moved_bytes(i, old, rows), strict=True))
        code = self.code_bytes.sum() if storm else self.code_bytes[i]
        has_code = old > 0 if hosts is None or not storm else hosts
        fetch = np.where(has_code, 0.0, self._round_trip + code / self.download_bytes_per_s)
        spawn = rows * self.spawn_s if storm else np.where(rows > old, self.spawn_s, 0.0)
        senders, receives = np.flatnonzero(old), rows > 0
        waits = np.full(len(rows), -np.inf)
        if not storm:
            waits = np.maximum(waits, np.where(receives, spawn, -np.inf).max(axis=1))
        for v in np.flatnonzero(receives.any(axis=0)):
            others = senders[senders != v]
            if len(others):
                sent = up[:, others].max(axis=1)
            elif len(senders):
                continue
            else:  # all lost: from the store alone
                sent = np.zeros(len(rows))
            before = fetch[v] + sent if storm else np.maximum(fetch[v], sent)
            mine = before + down[:, v] + spawn[:, v]
            waits = np.where(receives[:, v], np.maximum(waits, mine), waits)
        for at in np.flatnonzero(np.isneginf(waits)):  # Storm on one node, before and after
            new = rows[at]
            waits[at] = self._swap_s(i, old, out=True) + self._swap_s(i, new, out=False) + float(spawn[at].max())
        found: Array = self.sync_s + waits
        return found if lost else np.where((rows == old).all(axis=1), 0.0, found)

    def restart_s(self, i: int, running: Array) -> float:
        """t_D,R(i, U): an operator that does not change, when Storm restarts all; 0 in the general model."""
        if self.model == "general" or not running.any():
            return 0.0
        share = self.state_bytes[i] * running / running.sum()
        swaps = share / self.swap_out_bytes_per_s + share / self.swap_in_bytes_per_s
        return self.sync_s + float((swaps + running * self.spawn_s)[running > 0].max())

    def of(self, running: Any, deployment: Any) -> float:
        """T_D: seconds that the application stands still on its way from one deployment to another."""
        old, new = self.running(running), self.problem.deploy(deployment)
        if not old.lost.any() and (old.counts == new).all():
            return 0.0
        hosts: Any = old.counts.any(axis=0)
        return max(
            max(
                self.operator_s(i, old.counts[i], new[i], lost=bool(old.lost[i]), hosts=hosts),
                self.restart_s(i, old.counts[i]),
            )
            for i in range(len(new))
        )

    @property
    def _round_trip(self) -> Array:
        return self.to_store_s + self.from_store_s  # type: ignore[no-any-return]

    def _transfer(self, way: str, sizes: Array) -> Array:
        rate = self.upload_bytes_per_s if way == "up" else self.download_bytes_per_s
        made: Array = self._round_trip + sizes / rate
        return np.where(sizes > 0, made, 0.0) if self.zero_transfer == "free" else made

    def _swap_s(self, i: int, counts: Array, *, out: bool) -> float:
        rate = self.swap_out_bytes_per_s if out else self.swap_in_bytes_per_s
        return float((self.state_bytes[i] * counts / counts.sum() / rate).max())
