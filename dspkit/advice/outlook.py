"""What a recommended deployment would do: loads by arithmetic, latency on the plant fitted to the recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..core import Deployment, Snapshot
from ..errors import DspkitError
from ..frozen import FrozenMap
from ..history import History
from ..plant import Plant, fit_live
from ..simulator import Simulator
from ..workload import Constant
from .needs import Known, Needs, seconds

MOST_WINDOWS = 300  # that a plant is fitted to: the last ones
_WINDOW_S, _PLAYED = 30.0, 4  # of the simulated run; its last window counts
_MOST_LOST = 0.95  # of the load must be done, or the plant does not keep up
_OFF = 2.0  # times the measured latency, or its part, from which the plant's is not believed


@dataclass(frozen=True)
class After:
    """One deployment at the present load. `loads` above 1 are more than can be done; latency None is not known."""

    loads: Mapping[str, Known]
    whole: Known
    keeps_up: bool | None  # None: not known
    latency_s: float | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outlook:
    """What the recording allows to predict from; `note` says how far it carries."""

    needs: Needs
    history: History
    seen: Snapshot
    plant: Plant | None = None
    believed: bool = False  # whether the plant's latency is that of the job as it runs, or could not be compared
    note: str = ""

    def after(self, deployment: Deployment) -> After:
        """The job under this deployment."""
        k, now = deployment.parallelism, self.needs.parallelism
        speed = {n: self._speed(n, now[n], k[n]) for n in now}
        loads = {n: self.needs.load(n, k[n], speed[n]) for n in now}
        whole = self.needs.whole(k, speed)
        ceilings = self._ceilings()
        keeps = None if whole.value is None else whole.value < 1 and not ceilings
        notes = [f"{n} calls something that takes {c:,.4g} calls/s, whatever runs" for n, c in ceilings.items()]
        return After(FrozenMap(loads), whole, keeps, self._latency(deployment) if keeps else None, tuple(notes))

    def _speed(self, name: str, now: int, then: int) -> float:
        """How fast one of `then` instances is beside one of `now`, by the fitted law."""
        if self.plant is None:
            return 1.0
        service = self.plant.services[name]
        return service.seconds(now) / service.seconds(then)

    def _ceilings(self) -> dict[str, float]:
        """Operators whose external server takes less than is asked for."""
        if self.plant is None:
            return {}
        limits = {n: s.ceiling_per_s for n, s in self.plant.services.items()}
        return {n: c for n, c in limits.items() if (asked := self.needs.demand[n].value) is not None and asked > c}

    def _latency(self, deployment: Deployment) -> float | None:
        if self.plant is None or not self.believed:
            return None
        load = {n: Constant(rate) for n, rate in self.seen.source_rates.items()}
        alone = Deployment(deployment.parallelism)
        try:
            with (
                np.errstate(all="ignore"),
                Simulator(self.history.topology, self.plant, load, deployment=alone, window_s=_WINDOW_S) as backend,
            ):
                seen = [backend.observe() for _ in range(_PLAYED)][-1]
        except (ValueError, ArithmeticError):  # DspkitError among them
            return None
        works = seen.throughput > _MOST_LOST * self.seen.source_rate
        return seen.latency.mean if seen.latency and works else None


def outlook(history: History, needs: Needs, seen: Snapshot) -> Outlook:
    """Fits a plant, and holds its latency against the one that was measured, where there is one."""
    ran = history[-MOST_WINDOWS:]
    made = Outlook(needs, history, seen)
    try:
        with np.errstate(all="ignore"):  # wild rates overflow on the way to being refused
            plant = fit_live(ran)
    except DspkitError as error:
        return replace(made, note=f"No latency is predicted: {error}.")
    except (ValueError, ArithmeticError):  # numbers so far apart that least squares cannot carry them
        return replace(made, note="No latency is predicted: no plant makes such rates.")
    made = replace(made, plant=plant, believed=True)
    whole = needs.whole().value
    if seen.latency is None:
        note = "Latencies are those of a plant fitted to this run, without ways between operators: none was measured."
        return replace(made, note=note)
    if whole is None or not whole < 1:
        note = "Latencies are those of a plant fitted to this run; as the job is behind now, they could not be checked."
        return replace(made, note=note)
    own, measured = made._latency(seen.deployment), f"{seconds(seen.latency.mean)} were measured"
    if own is None or not 1 / _OFF < own / seen.latency.mean < _OFF:
        said = "none" if own is None else seconds(own)
        note = f"No latency is predicted: the fitted plant has {said} now, where {measured}."
        return replace(made, believed=False, note=note)
    return replace(
        made, note=f"Latencies are those of a plant fitted to this run: {seconds(own)} now, where {measured}."
    )
