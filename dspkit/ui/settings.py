"""What an Explorer's run depends on, and the load under a person's hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from ..core import Policy
from ..frozen import FrozenMap
from ..knobs import call
from ..topologies import App
from ..workload import Workload


@dataclass(frozen=True)
class Settings:
    """All that an Explorer's run depends on; `code()` is the same run without widgets."""

    app: str
    policy: Policy
    scale: float = 1.0
    parallelism: Mapping[str, int] = field(default_factory=FrozenMap)
    target_latency_s: float = 0.18
    windows: int = 90
    window_s: float = 10.0
    settle: int = 0
    seed: int = 0

    def code(self) -> str:
        """The same run as code to copy."""
        simulator = [f"scale={self.scale:g}"] if self.scale != 1 else []
        simulator += [f"parallelism={dict(self.parallelism)}"] if set(self.parallelism.values()) - {1} else []
        simulator += [f"window_s={self.window_s:g}"] if self.window_s != 10 else []
        simulator += [f"seed={self.seed}"] if self.seed else []
        loop = [f"steps={self.windows}"] + ([f"settle={self.settle}"] if self.settle else [])
        return (
            f"from dspkit import plots, run, topologies\n{imports(self.policy)}\n"
            f"app = topologies.{self.app}()\n"
            f"history = run({call(self.policy)}, app.simulator({', '.join(simulator)}), {', '.join(loop)})\n"
            f"plots.timeline(history, target_latency_s={self.target_latency_s:g})"
        )


def imports(policy: Any) -> str:
    """A line for the policy's class, and one for each policy that it wraps."""
    inner = [getattr(policy, f.name) for f in fields(policy)] if is_dataclass(policy) else []
    things = [thing for value in inner for thing in (value if isinstance(value, tuple) else (value,))]
    lines = dict.fromkeys(line for thing in things if is_dataclass(thing) for line in imports(thing).splitlines(True))
    return f"from {type(policy).__module__} import {type(policy).__name__}\n{''.join(lines)}"


class Dial(Workload):
    """A load as high as `scale()` says at the moment it is asked; all other loads are functions of time alone."""

    def __init__(self, load: Workload, scale: Callable[[], float]):
        self._load, self._scale = load, scale

    def rates(self, t: Any) -> Any:
        return self._scale() * self._load.rates(t)

    def __repr__(self) -> str:
        return f"{self._load} * {self._scale():g}"


def dials(app: App, scale: Callable[[], float]) -> dict[str, Workload]:
    """The app's load, turned by `scale()`, for each of its sources."""
    sources = app.topology.sources
    if isinstance(app.workload, Workload):
        share = app.workload if len(sources) == 1 else app.workload * (1 / len(sources))
        return dict.fromkeys(sources, Dial(share, scale))
    return {source: Dial(load, scale) for source, load in app.workload.items()}
