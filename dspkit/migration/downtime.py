"""How long Storm stands still for a change: predicted, phase after phase, since the whole job restarts [nardelli].

    | thesis | here |
    |---|---|
    | $t_{syn}$, $t_{s,u}$ | `sync_s`, `spawn_s`: of the rebalance command; of one instance on a node |
    | $I_{S,i}$, $\\sum_j I_{C,j}$ | `state_bytes` of the operator, `code_bytes` of the job |
    | $d_{(u,DS)}$, $r_{(u,DS)}$ | `delay_s` one way to the data store, `bytes_per_s` |
    | $\\mathcal U$, $\\mathcal V$ | `before`, `after`: replicas by node |

(8.40) prints $t_{s,v}$ where only u exists; local rates are not given and taken as infinite; a transfer of nothing
costs nothing, unless `round_trips`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..knobs import Knobs, knob


@dataclass(frozen=True)
class StormDowntime(Knobs):
    r"""$t_D = t_{syn} + \max_{u \ne v} [\tau_C(v) + \tau^{upl}(u) + \tau^{dwn}(v) + \mathcal V(v)\,t_{s,v}]$.

    >>> round(StormDowntime().seconds({"a": 1}, {"b": 1}, 1536, running={"a", "b"}), 8)
    6.52024576
    """

    sync_s: float = knob(6.0, "cost of the rebalance command", low=0.0, high=600.0, unit="s", source="prototype")
    spawn_s: float = knob(0.5, "time to start one instance", low=0.0, high=600.0, unit="s", source="prototype")
    delay_s: float = knob(5e-3, "one way to the data store", low=0.0, high=60.0, unit="s", source="prototype")
    bytes_per_s: float = knob(12.5e6, "to and from the data store", low=1.0, high=1e12, unit="B/s", source="100 Mbit/s")
    code_bytes: float = knob(2.4e6, "code of the whole job", low=0.0, high=1e12, unit="B", source="8 x 300 KB")
    round_trips: bool = knob(False, "a transfer of nothing takes a round trip, as printed", choices=(False, True))

    def seconds(
        self,
        before: Mapping[str, int],
        after: Mapping[str, int],
        state_bytes: float = 0.0,
        running: Collection[str] | None = None,
    ) -> float:
        """Of a change from `before` to `after`; `running` are all nodes the job has code on (default: `before`)."""
        old, new = ({n: k for n, k in each.items() if k} for each in (before, after))
        if old == new:
            return 0.0
        known = set(old) if running is None else set(running)
        u, v = sum(old.values()), sum(new.values())
        pairs = [
            (0.0 if b in known else self._transfer(self.code_bytes))
            + self._transfer(state_bytes * old[a] / u)
            + self._transfer(state_bytes * new[b] / v)
            + new[b] * self.spawn_s
            for a in old
            for b in new
            if a != b
        ]
        return self.sync_s + max(pairs or [max(new.values()) * self.spawn_s])

    def restart(self, replicas: Mapping[str, int]) -> float:
        """Of an operator that stays as it is, when the job restarts."""
        return self.sync_s + max(replicas.values()) * self.spawn_s

    def _transfer(self, size: float) -> float:
        if size == 0 and not self.round_trips:
            return 0.0
        return 2 * self.delay_s + size / self.bytes_per_s
