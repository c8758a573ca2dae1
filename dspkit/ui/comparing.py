"""What a comparison depends on, and its runs in the background: no widget here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..core import Policy
from ..errors import DspkitError
from ..history import History
from ..knobs import call
from ..loop import describe, mape
from .settings import OnApplication, application_code, imports, loop_arguments
from .task import Task

LETTERS = "ABCD"


@dataclass(frozen=True, repr=False)
class CompareSettings(OnApplication):
    """All that a comparison depends on; `code()` is the same without widgets."""

    policies: tuple[Policy, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.policies, tuple) or not all(isinstance(p, Policy) for p in self.policies):
            raise DspkitError(f"policies {self.policies!r}", expected="a tuple of policies, as (DS2(), Static())",
                              fix="copy what the view shows as settings")  # fmt: skip
        if not 2 <= len(self.policies) <= len(LETTERS):
            raise DspkitError(f"{len(self.policies)} policies", expected="two to four", fix="drop or add some")

    def named(self) -> dict[str, Policy]:
        """The policies, by a letter and their name: two of one kind may differ in their knobs."""
        return {f"{letter}: {p.name}": p for letter, p in zip(LETTERS, self.policies, strict=False)}

    def code(self) -> str:
        names, made = application_code(self)
        scale = f"scale={self.scale:g}, " if self.scale != 1 else ""
        lines = "".join(f"    {name!r}: {call(policy)},\n" for name, policy in self.named().items())
        needed = "".join(dict.fromkeys(line for p in self.policies for line in imports(p).splitlines(True)))
        return (
            f"from dspkit import {', '.join(sorted({'plots', 'run', *names}))}\n{needed}\n{made}"
            f"policies = {{\n{lines}}}\n"
            f"runs = {{name: run(policy, app.simulator({scale}window_s={self.window_s:g}, seed={self.seed}), "
            f"{loop_arguments(self)}) for name, policy in policies.items()}}\n"
            f"plots.managed(runs, limit_s={self.target_latency_s:g})"
        )


class Comparing(Task):
    """All policies, window by window, so that their pictures grow together."""

    def __init__(self, settings: CompareSettings, show: Callable[[Any], None]):
        super().__init__(show)
        self.settings = settings
        self.runs: dict[str, History] = {}

    def pieces(self) -> Iterator[None]:
        s = self.settings
        app = s.application()
        loops = {}
        for name, policy in s.named().items():
            simulator = app.simulator(scale=s.scale, window_s=s.window_s, seed=s.seed)
            self.runs[name] = History(simulator.topology)
            self.runs[name].tell(describe(policy, simulator, settle=s.settle, seed=s.seed))
            loops[name] = mape(policy, simulator, steps=s.windows, settle=s.settle, seed=s.seed)
        for _ in range(s.windows):
            for name, loop in loops.items():
                self.runs[name].append(next(loop))
            yield
