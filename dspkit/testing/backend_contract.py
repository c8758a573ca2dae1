"""The contract of backends: contiguous windows, complete snapshots, and deployments that take effect."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..core import Backend, BackendError, Deployment, DeploymentError, DspkitError, Snapshot
from ..core.policy import KNOBS
from .contract import ContractError, require, rule

BUSY = 0.05  # tolerance of processing rate = true rate x busy share, as meters are read one after the other


def check_backend(make: Callable[[], Backend], *, only: Sequence[str] = ()) -> None:
    """Raise a ContractError at the first rule that a backend breaks; each rule gets its own backend.

    Parameters
    ----------
    make : callable
        Makes a backend that runs a job under some load.
    only : sequence of str
        Names of the rules to check, out of `BACKEND_CHECKS`; by default all.

    Examples
    --------
    >>> from dspkit import apps
    >>> check_backend(lambda: apps.word_count().simulator(window_s=5.0))
    """
    for check in BACKEND_CHECKS:
        if not only or check.__name__ in only:
            with make() as backend:
                check(backend)


@rule
def says_what_it_can_change(backend: Backend) -> None:
    """It is a Backend with a topology, and its knobs are fields of a Deployment."""
    require(
        isinstance(backend, Backend), f"{backend!r:.60}", expected="a Backend", fix="see dspkit.core.policy.Backend"
    )
    require(
        isinstance(backend.knobs, frozenset) and backend.knobs <= set(KNOBS),
        f"knobs {backend.knobs!r}",
        expected=f"a frozenset of {', '.join(KNOBS)}",
        fix='as in knobs = frozenset({"parallelism"})',
    )
    require(bool(backend.topology.order), "a topology without operators", expected="at least one", fix="name them")


@rule
def windows_follow_one_another(backend: Backend) -> None:
    """Each window begins at the end of the previous one."""
    first, second = _window(backend), _window(backend)
    require(first.t > 0, f"a first window that ends at {first.t}", expected="a time above 0", fix="count from 0")
    require(
        math.isclose(second.t, first.t + second.window_s, rel_tol=1e-6),
        f"windows that end at {first.t:g} s and {second.t:g} s, the second {second.window_s:g} s long",
        expected="the second to begin where the first ended",
        fix="report t as the window's end",
    )


@rule
def snapshots_cover_the_topology(backend: Backend) -> None:
    """Every operator, source and edge is measured, and counts agree with the deployment."""
    snapshot, topology = _window(backend), backend.topology
    parts: tuple[tuple[str, Any, Any], ...] = (
        ("operators", snapshot.operators, topology.order),
        ("source_rates", snapshot.source_rates, topology.sources),
        ("edge_rates", snapshot.edge_rates, topology.edges),
    )
    for name, got, known in parts:
        require(set(got) == set(known), f"{name} of {sorted(got)}", expected=f"{sorted(known)}", fix="measure all")
    topology.check(snapshot.deployment)
    for name, metrics in snapshot.operators.items():
        runs = snapshot.deployment.parallelism[name]
        require(
            metrics.parallelism == runs,
            f"{metrics.parallelism} instances of {name!r} in its metrics",
            expected=f"{runs}, as in the deployment",
            fix="report both at the same moment",
        )


@rule
def rates_fit_together(backend: Backend) -> None:
    """Output is the sum over edges, lag the sources' backlog, and busy share times true rate the processing rate."""
    for _ in range(3):
        snapshot = _window(backend)
        for name, m in snapshot.operators.items():
            downstream = backend.topology.downstream(name)
            if downstream:
                sent = sum(snapshot.edge_rates[name, child] for child in downstream)
                _close(m.output_rate, sent, 1e-6, f"output rate of {name!r}", "the sum over its edges")
            if m.true_rate is not None:
                busy = m.true_rate * m.parallelism * m.utilisation
                what = "true rate x instances x utilisation"
                _close(m.processing_rate, busy, BUSY, f"processing rate of {name!r}", what)
        held = sum(snapshot.operators[s].backlog for s in backend.topology.sources)
        _close(snapshot.lag, held, 1e-6, "lag", "the sources' backlog")
        if snapshot.latency is not None and snapshot.event_latency is not None:
            latency = snapshot.latency
            require(
                latency.p50 <= latency.p95 <= latency.p99, f"{latency}", expected="p50 <= p95 <= p99", fix="sort them"
            )
            require(
                snapshot.event_latency.mean >= latency.mean,
                f"event latency {snapshot.event_latency.mean} below latency {latency.mean}",
                expected="the wait in the source's log on top",
                fix="measure event latency from the record's own time",
            )


@rule
def deploys_for_the_next_window(backend: Backend) -> None:
    """A deployment runs from the next window on."""
    if "parallelism" not in backend.knobs:
        return
    target = _changed(backend, _window(backend).deployment)
    backend.deploy(target)
    runs = _window(backend).deployment
    require(runs == target, f"{runs} in the next window", expected=f"{target}", fix="report a deployment once it runs")


@rule
def refuses_what_does_not_fit(backend: Backend) -> None:
    """A deployment that does not fit the topology raises a DeploymentError and changes nothing."""
    before = _window(backend).deployment
    name = next(iter(before.parallelism))
    for wrong in ({**before.parallelism, name: 10_000_000}, {**before.parallelism, "typo": 1}):
        _refused(backend, replace(before, parallelism=wrong), DeploymentError, f"parallelism {wrong}")
    if len(before.parallelism) > 1:
        _refused(backend, replace(before, parallelism={name: 1}), DeploymentError, f"parallelism of {name!r} alone")
    _unchanged(backend, before)


@rule
def refuses_what_is_no_knob(backend: Backend) -> None:
    """A change that the backend does not support is rejected by name, and changes nothing."""
    before = _window(backend).deployment
    name = next(iter(before.parallelism))
    other: dict[str, Any] = {"workers": 7, "settings": {"x": 1}, "placement": {(name, 0): "elsewhere"}}
    for field in sorted({"workers", "settings", "placement"} - backend.knobs):
        _refused(backend, replace(before, **{field: other[field]}), DspkitError, f"another {field}", field)
    _unchanged(backend, before)


@rule
def stays_closed(backend: Backend) -> None:
    """Closing twice is allowed, and no other call works afterwards."""
    last = _window(backend).deployment
    backend.close()
    backend.close()
    calls: dict[str, Callable[[], Any]] = {
        "observe": backend.observe,
        "deploy": lambda: backend.deploy(_changed(backend, last)),
    }
    for name, use in calls.items():
        try:
            use()
        except BackendError as error:
            require("after close" in str(error), str(error), expected='"after close" in it', fix="word it so")
        else:
            raise ContractError(f"{name}() after close()", expected="a BackendError", fix="reject the call")


@rule
def says_what_it_is(backend: Backend) -> None:
    """The repr names the first operator, so that runs can be distinguished."""
    first = backend.topology.order[0]
    require(first in repr(backend), repr(backend)[:100], expected=f"{first!r} in it", fix="write a __repr__")


BACKEND_CHECKS: tuple[Callable[[Backend], None], ...] = (
    says_what_it_can_change,
    windows_follow_one_another,
    snapshots_cover_the_topology,
    rates_fit_together,
    deploys_for_the_next_window,
    refuses_what_does_not_fit,
    refuses_what_is_no_knob,
    stays_closed,
    says_what_it_is,
)


def _window(backend: Backend) -> Snapshot:
    snapshot = backend.observe()
    require(
        isinstance(snapshot, Snapshot),
        f"{snapshot!r:.60} from observe()",
        expected="a Snapshot",
        fix="check a backend with at least three windows",
    )
    assert snapshot is not None
    return snapshot


def _changed(backend: Backend, deployment: Deployment) -> Deployment:
    """Return the deployment with one more instance of the first operator that allows it, or else one fewer."""
    for step in (1, -1):
        for name, k in deployment.parallelism.items():
            if backend.topology.clip({name: k + step})[name] == k + step:
                return deployment.scaled({name: k + step})
    return deployment


def _refused(backend: Backend, deployment: Deployment, kind: type[Exception], what: str, word: str = "") -> None:
    try:
        backend.deploy(deployment)
    except kind as error:
        require(word in str(error), str(error), expected=f"{word!r} in it", fix="name what cannot be changed")
    else:
        raise ContractError(f"{what} deployed", expected=f"a {kind.__name__}", fix="check it with topology.check()")


def _unchanged(backend: Backend, before: Deployment) -> None:
    runs = _window(backend).deployment
    require(runs == before, f"{runs} after that", expected=f"{before}, as before", fix="check before anything changes")


def _close(got: float, other: float, share: float, name: str, what: str) -> None:
    near = math.isclose(got, other, rel_tol=share, abs_tol=1e-9)
    require(near, f"{name} = {got:g}, but {what} = {other:g}", expected="the same", fix="measure both over one window")
