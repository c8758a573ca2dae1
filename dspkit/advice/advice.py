"""The advice itself: tables, sentences, figures, the notebook's view and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import NotFoundError
from ..frozen import FrozenMap
from ..history import History
from . import tables, words
from .ask import Recommendation
from .evidence import Evidence
from .needs import Needs
from .outlook import After, Outlook
from .settings import Settings, settings

if TYPE_CHECKING:
    import pandas as pd

    from ..plots import Plot


@dataclass(frozen=True, eq=False)
class Advice:
    """Where the bottleneck is, what each policy recommends, how sure, and why.

    `advice["ds2"]` is one policy's recommendation; `operators`, `parallelism` and `policies` are data frames;
    `settings()` says what to change in the engine; `report()` writes one HTML file.
    """

    history: History = field(repr=False)
    evidence: Evidence = field(repr=False)
    needs: Needs = field(repr=False)
    outlook: Outlook = field(repr=False)
    recommendations: tuple[Recommendation, ...]
    engine: str
    target_latency: float | None = None
    problems: Mapping[str, int] = field(default_factory=FrozenMap)  # what the loader dropped, by reason

    def __getitem__(self, policy: str) -> Recommendation:
        for one in self.recommendations:
            if one.policy == policy:
                return one
        names = ", ".join(r.policy for r in self.recommendations)
        raise NotFoundError(f"policy {policy!r}", expected=f"one of {names}", fix="ask it with policies=")

    @cached_property
    def bottleneck(self) -> str | None:
        """The operator of the highest load; None if nothing comes in, or it cannot be told."""
        found = self.needs.bottleneck
        return found[0] if found else None

    @property
    def idle(self) -> bool:
        """Whether nothing comes in."""
        return all(k.value == 0 for k in self.needs.demand.values())

    @property
    def unqueued(self) -> list[str]:
        """Operators of which nobody measured how many records wait: their backlog of 0 stands for that."""
        told = self.history.about.get("backlog_unmeasured", ())
        return [n for n in self.history.topology.order if isinstance(told, (list, tuple)) and n in told]

    @cached_property
    def after(self) -> Mapping[str, After]:
        """By policy, what its deployment would do at the present load."""
        return {r.policy: self.outlook.after(r.deployment) for r in self.recommendations if r.deployment is not None}

    @cached_property
    def choice(self) -> str | None:
        """The policy with the fewest instances of those that keep up, for sure if any does, and meet the target.

        A latency that is not known rules nobody out; of an idle job there is no choice.
        """
        if self.idle:
            return None
        ranked = []
        for r in self.recommendations:
            after = self.after.get(r.policy)
            if r.deployment is None or after is None or not after.keeps_up:
                continue
            late = after.latency_s is not None and self.target_latency is not None
            if late and (after.latency_s or 0.0) > (self.target_latency or 0.0):
                continue
            sure = after.whole.high is not None and after.whole.high < 1
            ranked.append((not sure, r.deployment.instances, r.policy))
        return min(ranked, key=lambda row: row[:2])[2] if ranked else None

    @cached_property
    def operators(self) -> pd.DataFrame:
        """One row an operator: rates in records/s, shares, intervals of 95 %, effective throughput percentage."""
        return tables.operators(self)

    @cached_property
    def parallelism(self) -> pd.DataFrame:
        """One row an operator: instances now and by policy, the least and the most, and who says so."""
        return tables.parallelism(self)

    @cached_property
    def policies(self) -> pd.DataFrame:
        """One row a policy: what it wants, the load and latency afterwards, agreement over parts, and why."""
        return tables.policies(self)

    def settings(self, policy: str | None = None) -> Settings:
        """What to change in the engine for one policy's deployment, by default for that of `choice`."""
        name = policy or self.choice
        if name is None:
            raise NotFoundError(
                "no recommendation that keeps up", expected="a policy's name", fix="as in settings('ds2')"
            )
        target = self[name].deployment
        if target is None:
            raise NotFoundError(f"no deployment of {name!r}", expected="a policy that could say", fix=self[name].note)
        now = self.evidence.windows[-1].deployment
        vertices = self.history.about.get("vertices")
        ids = {str(k): str(v) for k, v in vertices.items()} if isinstance(vertices, Mapping) else {}
        return settings(self.history.topology, now, target, self.engine, law=self.needs.law, vertices=ids)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The answer: the bottleneck, what policies say, what to take, and how far all that carries."""
        return words.sentences(self)

    @property
    def told(self) -> str:
        """What policies say, in a sentence."""
        return words.policies(self)[0]

    @cached_property
    def figures(self) -> tuple[Plot, Plot]:
        """Loads of the operators, and what each policy recommends."""
        from .. import plots

        return plots.loads(self), plots.recommended(self)

    def report(self, path: str | Path | None = None, *, title: str = "", overwrite: bool = False) -> Path:
        """Write the advice as one HTML file and return its path."""
        from .page import write

        return write(self, path, title=title, overwrite=overwrite)

    def __repr__(self) -> str:
        lines = [f"  {r.policy:<18} {r.says}" for r in self.recommendations]
        return "\n".join(["Advice", *(f"  {s}" for s in self.sentences), *lines])

    def _repr_html_(self) -> str:
        return words.html(self)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display({"text/html": self._repr_html_(), "text/plain": repr(self)}, raw=True)  # type: ignore[no-untyped-call]
        for plot in self.figures:
            plot._ipython_display_()
