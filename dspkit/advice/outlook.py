"""The predicted effect of a deployment: loads by arithmetic, latency on the plant fitted to the recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..core import Deployment, DspkitError, FrozenMap, History, Snapshot
from ..simulator import Plant, Simulator, fit_live
from ..workload import Constant
from .needs import IntervalEstimate, Needs, seconds

MOST_WINDOWS = 300  # the last ones, to which a plant is fitted
_WINDOW_S, _PLAYED = 30.0, 4  # of the simulated run; its last window counts
_MOST_LOST = 0.95  # of the load must be processed, or the plant does not keep up
_OFF = 2.0  # the factor to the measured latency from which the plant's is rejected


@dataclass(frozen=True)
class After:
    """The predicted effect of a deployment at the current load.

    Parameters
    ----------
    loads : mapping
        Load of each operator; above 1 it exceeds the capacity.
    whole : IntervalEstimate
        Load of the job.
    keeps_up : bool or None
        Whether the job keeps up; None if unknown.
    latency_s : float or None
        Mean latency in seconds; None if unknown.
    notes : tuple of str
        Limits of the prediction.

    Examples
    --------
    >>> After({"count": IntervalEstimate(0.8)}, IntervalEstimate(0.8), True, None).keeps_up
    True
    """

    loads: Mapping[str, IntervalEstimate]
    whole: IntervalEstimate
    keeps_up: bool | None
    latency_s: float | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outlook:
    """The basis of predictions: loads by arithmetic, latency on a plant fitted to the recording.

    Parameters
    ----------
    needs : Needs
        The needs of all operators.
    history : History
        The recorded job.
    snapshot : Snapshot
        The combined windows.
    plant : Plant, optional
        The fitted plant.
    believed : bool
        Whether the plant's latency matches that of the running job, or could not be compared.
    note : str
        Limits of the predictions.

    Examples
    --------
    >>> from dspkit import advise, apps, run, workload
    >>> from dspkit.policies.static import Static
    >>> app = apps.word_count()
    >>> history = run(Static(), app.simulator(workload.Constant(140e3), parallelism=3), steps=20)
    >>> advise(history, policies=["ds2"]).outlook.plant is not None
    True
    """

    needs: Needs
    history: History
    snapshot: Snapshot
    plant: Plant | None = None
    believed: bool = False
    note: str = ""

    def after(self, deployment: Deployment) -> After:
        """Return the predicted effect of a deployment.

        Parameters
        ----------
        deployment : Deployment
            The deployment to predict, at the load of the recording.

        Examples
        --------
        >>> from dspkit import advise, apps, run, workload
        >>> from dspkit.policies.static import Static
        >>> app = apps.word_count()
        >>> history = run(Static(), app.simulator(workload.Constant(140e3), parallelism=3), steps=20)
        >>> advice = advise(history, policies=["ds2"])
        >>> advice.outlook.after(advice["ds2"].deployment).keeps_up
        True
        """
        k, now = deployment.parallelism, self.needs.parallelism
        speed = {n: self._speed(n, now[n], k[n]) for n in now}
        loads = {n: self.needs.load(n, k[n], speed[n]) for n in now}
        whole = self.needs.whole(k, speed)
        ceilings = self._ceilings()
        keeps = None if whole.value is None else whole.value < 1 and not ceilings
        notes = [
            f"{n} calls a server that is limited to {c:,.4g} calls/s at any parallelism" for n, c in ceilings.items()
        ]
        return After(FrozenMap(loads), whole, keeps, self._latency(deployment) if keeps else None, tuple(notes))

    def _speed(self, name: str, now: int, then: int) -> float:
        """Return the rate of one of `then` instances relative to one of `now`, by the fitted law."""
        if self.plant is None:
            return 1.0
        service = self.plant.services[name]
        return service.seconds(now) / service.seconds(then)

    def _ceilings(self) -> dict[str, float]:
        """Return the operators whose external server limits them below their demand."""
        if self.plant is None:
            return {}
        limits = {n: s.external_rate_limit_per_s for n, s in self.plant.services.items()}
        return {n: c for n, c in limits.items() if (asked := self.needs.demand[n].value) is not None and asked > c}

    def _latency(self, deployment: Deployment) -> float | None:
        if self.plant is None or not self.believed:
            return None
        load = {n: Constant(rate) for n, rate in self.snapshot.source_rates.items()}
        alone = Deployment(deployment.parallelism)
        try:
            with (
                np.errstate(all="ignore"),
                Simulator(self.history.topology, self.plant, load, deployment=alone, window_s=_WINDOW_S) as backend,
            ):
                seen = [backend.observe() for _ in range(_PLAYED)][-1]
        except (DspkitError, ValueError, ArithmeticError):
            return None
        works = seen.throughput > _MOST_LOST * self.snapshot.source_rate
        return seen.latency.mean if seen.latency and works else None


def outlook(history: History, needs: Needs, snapshot: Snapshot) -> Outlook:
    """Fit a plant, and compare its latency with the measured one, if there is one."""
    ran = history[-MOST_WINDOWS:]
    made = Outlook(needs, history, snapshot)
    try:
        with np.errstate(all="ignore"):  # extreme rates overflow before they are rejected
            plant = fit_live(ran)
    except DspkitError as error:
        return replace(made, note=f"No latency is predicted: {error}.")
    except (ValueError, ArithmeticError):  # numbers too far apart for least squares
        return replace(made, note="No latency is predicted: no plant fits these rates.")
    made = replace(made, plant=plant, believed=True)
    whole = needs.whole().value
    if snapshot.latency is None:
        note = "Latencies are those of a plant fitted to this run without delays: no latency was measured."
        return replace(made, note=note)
    if whole is None or not whole < 1:
        note = "Latencies are those of a plant fitted to this run, unchecked because the job is behind now."
        return replace(made, note=note)
    own, measured = made._latency(snapshot.deployment), f"{seconds(snapshot.latency.mean)} were measured"
    if own is None or not 1 / _OFF < own / snapshot.latency.mean < _OFF:
        said = "none" if own is None else seconds(own)
        note = f"No latency is predicted: the fitted plant has {said} now, where {measured}."
        return replace(made, believed=False, note=note)
    return replace(
        made, note=f"Latencies are those of a plant fitted to this run: {seconds(own)} now, where {measured}."
    )
