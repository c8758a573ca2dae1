"""Downtime: the time that an application is paused while replicas start, stop and migrate (appendix 8.A) [nardelli].

| here | thesis |
|---|---|
| `state_bytes`, `code_bytes` | I_S,i and I_C,i |
| `to_store_s`, `from_store_s` | d_(x,DS), d_(DS,x): delays to and from the store of code and state |
| `upload_bytes_per_s`, `download_bytes_per_s` | r_(x,DS), r_(DS,x) |
| `swap_out_bytes_per_s`, `swap_in_bytes_per_s` | r_(x,LS), r_(LS,x): a node's own disk, Storm only |
| `spawn_s`, `sync_s` | t_s,u and t_syn |
| `operator_s`, `restart_s`, `of` | t_D(i, U, V), t_D,R(i, U), T_D |

`model="general"`: each operator changes by itself, only state that changes its node is moved, and a node spawns its
replicas in parallel. `model="storm"`: any change restarts the whole application, an operator that changes moves all its
state, and a node spawns its replicas one by one.

A state of size 0 takes no time to move (`zero_transfer="rtt"`: one round trip, as printed). With
`upload_form="printed"` nodes upload more than they own if a scale-out also removes a replica. (8.25) prints scale-out
and scale-in swapped, which is corrected here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...core import PlacementError
from ...core.typing import Array
from ..arrays import vector
from .problem import Replicas

CHOICES = {"model": ("general", "storm"), "upload_form": ("kept", "printed"), "zero_transfer": ("free", "rtt")}


class Running(NamedTuple):
    """The running deployment: replicas on nodes that are still there, and operators that lost some with a node."""

    counts: Replicas
    lost: Array


@dataclass(frozen=True, eq=False)
class Downtime:
    """The downtime that a change of the running deployment costs.

    Numbers are one for all, one each in order, or a mapping by name; a `Problem` checks them against its operators
    and nodes.

    Parameters
    ----------
    state_bytes
        Size of each operator's state.
    code_bytes
        Size of each operator's code, which a node fetches before it runs the first replica.
    to_store_s, from_store_s
        Seconds of delay from each node to the store of code and state, and back.
    upload_bytes_per_s, download_bytes_per_s
        Rates between each node and the store.
    swap_out_bytes_per_s, swap_in_bytes_per_s
        Rates between each node and its own disk ("storm" only).
    spawn_s
        Seconds that each node takes to start a replica.
    sync_s
        Seconds that any change takes.
    model
        "general": operators change by themselves; "storm": any change restarts the whole application.
    upload_form
        "kept": a node uploads no more than it owns; "printed": as (8.32) is printed.
    zero_transfer
        "free": a state of size 0 takes no time to move; "rtt": one round trip, as printed.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from dspkit import placement
    >>> problem = replace(placement.example("replicas"), downtime=Downtime(state_bytes=(0, 1.25e6, 0)))
    >>> running = {"1": "a", "2": "a", "3": "c"}
    >>> round(problem.downtime_s(running, {**running, "2": "b"}), 3)
    0.97

    For one operator, with numbers of replicas on two nodes:

    >>> import numpy as np
    >>> model = Downtime(state_bytes=1.25e6).checked(("a",), ("u", "v"))
    >>> before, after = np.array([1, 0]), np.array([0, 1])
    >>> [size.tolist() for size in model.moved_bytes(0, before, after)]
    [[1250000.0, 0.0], [0.0, 1250000.0]]
    >>> round(model.operator_s(0, before, after), 3), model.operators_s(0, before, np.array([before, after])).tolist()
    (0.97, [0.0, 0.97])
    >>> round(model.of(Running(before[None], np.array([False])), after[None]), 3)
    0.97
    """

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
        for name, choices in CHOICES.items():
            if (got := getattr(self, name)) not in choices:
                raise PlacementError(f"{name} {got!r}", expected=f"one of {choices}", fix="choose one")
        object.__setattr__(self, "sync_s", float(vector(self.sync_s, ("sync",), "sync_s", low=0.0)[0]))

    def checked(self, operators: tuple[str, ...], nodes: tuple[str, ...]) -> Downtime:
        """Return the same with an array per number, checked against the names of a problem.

        Parameters
        ----------
        operators, nodes
            Names.

        Examples
        --------
        >>> Downtime(state_bytes=5).checked(("a", "b"), ("u",)).state_bytes
        array([5., 5.])
        """
        values: dict[str, Any] = {}
        for name in ("state_bytes", "code_bytes"):
            values[name] = vector(getattr(self, name), operators, name, low=0.0)
        for name in ("to_store_s", "from_store_s", "spawn_s"):
            values[name] = vector(getattr(self, name), nodes, name, low=0.0)
        for name in ("upload", "download", "swap_out", "swap_in"):
            name += "_bytes_per_s"
            values[name] = vector(getattr(self, name), nodes, name, low=0.0, high=math.inf, open_low=True)
        return replace(self, **values)

    def moved_bytes(self, i: int, old: Array, new: Array) -> tuple[Array, Array]:
        """Return the bytes of an operator's state that each node uploads and downloads (8.30)-(8.33).

        Parameters
        ----------
        i
            Index of the operator.
        old, new
            Its replicas on each node, before and after; `new` may have several rows.
        """
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
        """Return t_D(i, U, V): the seconds that the change of one operator takes.

        Parameters
        ----------
        i
            Index of the operator.
        old, new
            Its replicas on each node, before and after.
        lost
            Whether some replicas were lost with their node.
        hosts
            Nodes that have Storm's code.
        """
        return float(self.operators_s(i, old, np.asarray(new)[None], lost=lost, hosts=hosts)[0])

    def operators_s(self, i: int, old: Array, rows: Array, *, lost: bool = False, hosts: Array | None = None) -> Array:
        """Return the same for many deployments of the operator at once.

        Parameters
        ----------
        i, old, lost, hosts
            As of `operator_s`.
        rows
            One row of counts per deployment.
        """
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
            else:  # all lost: state comes from the store alone
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
        """Return t_D,R(i, U): the downtime, in seconds, of an unchanged operator while Storm restarts the application.

        It is 0 in the general model.

        Parameters
        ----------
        i
            Index of the operator.
        running
            Its replicas on each node.

        Examples
        --------
        >>> import numpy as np
        >>> Downtime(model="storm").checked(("a",), ("u", "v")).restart_s(0, np.array([2, 0]))
        1.25
        """
        if self.model == "general" or not running.any():
            return 0.0
        share = self.state_bytes[i] * running / running.sum()
        swaps = share / self.swap_out_bytes_per_s + share / self.swap_in_bytes_per_s
        return self.sync_s + float((swaps + running * self.spawn_s)[running > 0].max())

    def of(self, old: Running, new: Replicas) -> float:
        """Return T_D: the downtime, in seconds, of the change from the running deployment to these counts.

        Parameters
        ----------
        old
            The running deployment.
        new
            Counts of replicas: one row per operator, one column per node.
        """
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
