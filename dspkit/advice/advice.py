"""The advice itself: tables, sentences, figures, the notebook view and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ..core import FrozenMap, History, NotFoundError
from . import presentation as tables
from . import presentation as words
from .evidence import Evidence
from .needs import Needs
from .outlook import After, Outlook
from .recommendations import Recommendation
from .settings import EngineSettings, settings

if TYPE_CHECKING:
    import pandas as pd

    from ..plots import Plot


@dataclass(frozen=True, eq=False)
class Advice:
    """The bottleneck of a job and the recommendation of each policy, with confidence and reasons.

    `dspkit.advise` returns it. `advice["ds2"]` is one policy's recommendation; `operators`, `parallelism` and
    `policies` are data frames; `settings()` returns the settings to change in the engine; `report()` writes one HTML
    file.

    Parameters
    ----------
    history : History
        The recorded job.
    evidence : Evidence
        The windows that count.
    needs : Needs
        The needs of all operators.
    outlook : Outlook
        The basis of predictions.
    recommendations : tuple of Recommendation
        One recommendation per policy.
    engine : str
        The engine whose settings are named.
    target_latency_s : float, optional
        The mean latency to meet, in seconds.
    problems : mapping
        Readings that the loader dropped, by reason.

    Examples
    --------
    >>> from dspkit import advise, apps, run, workload
    >>> from dspkit.policies.static import Static
    >>> app = apps.word_count()
    >>> history = run(Static(), app.simulator(workload.Constant(140e3), parallelism=3), steps=20)
    >>> advice = advise(history, policies=["ds2"])
    >>> advice.choice, advice.parallelism.ds2.tolist()
    ('ds2', [2, 2, 5, 4])
    """

    history: History = field(repr=False)
    evidence: Evidence = field(repr=False)
    needs: Needs = field(repr=False)
    outlook: Outlook = field(repr=False)
    recommendations: tuple[Recommendation, ...]
    engine: str
    target_latency_s: float | None = None
    problems: Mapping[str, int] = field(default_factory=FrozenMap)

    def __getitem__(self, policy: str) -> Recommendation:
        for one in self.recommendations:
            if one.policy == policy:
                return one
        names = ", ".join(r.policy for r in self.recommendations)
        raise NotFoundError(f"policy {policy!r}", expected=f"one of {names}", fix="include it in policies=")

    @cached_property
    def bottleneck(self) -> str | None:
        """The operator with the highest load; None without input, or if it is unknown."""
        found = self.needs.bottleneck
        return found[0] if found else None

    @property
    def idle(self) -> bool:
        """True if the job has no input."""
        return all(k.value == 0 for k in self.needs.demand.values())

    @property
    def unqueued(self) -> list[str]:
        """Operators without a measured backlog: their backlog of 0 means unknown."""
        told = self.history.about.get("backlog_unmeasured", ())
        return [n for n in self.history.topology.order if isinstance(told, (list, tuple)) and n in told]

    @cached_property
    def after(self) -> Mapping[str, After]:
        """The predicted effect of each policy's deployment at the current load."""
        return {r.policy: self.outlook.after(r.deployment) for r in self.recommendations if r.deployment is not None}

    @cached_property
    def choice(self) -> str | None:
        """The policy with the fewest instances among those that keep up, for sure if possible, and meet the target.

        An unknown latency rules out no policy; for an idle job there is no choice.
        """
        if self.idle:
            return None
        ranked = []
        for r in self.recommendations:
            after = self.after.get(r.policy)
            if r.deployment is None or after is None or not after.keeps_up:
                continue
            late = after.latency_s is not None and self.target_latency_s is not None
            if late and (after.latency_s or 0.0) > (self.target_latency_s or 0.0):
                continue
            sure = after.whole.high is not None and after.whole.high < 1
            ranked.append((not sure, r.deployment.instances, r.policy))
        return min(ranked, key=lambda row: row[:2])[2] if ranked else None

    @cached_property
    def operators(self) -> pd.DataFrame:
        """One row per operator: rates in records/s, shares, intervals of 95 %, effective throughput percentage."""
        return tables.operators(self)

    @cached_property
    def parallelism(self) -> pd.DataFrame:
        """One row per operator: instances now and by policy, the minimum and the maximum with their policies."""
        return tables.parallelism(self)

    @cached_property
    def policies(self) -> pd.DataFrame:
        """One row per policy: its recommendation, load and latency afterwards, agreement over parts, reasons."""
        return tables.policies(self)

    def settings(self, policy: str | None = None) -> EngineSettings:
        """Return the settings of the engine for one policy's deployment.

        Parameters
        ----------
        policy : str, optional
            The name of the policy, by default that of `choice`.

        Examples
        --------
        >>> from dspkit import advise, apps, run, workload
        >>> from dspkit.policies.static import Static
        >>> app = apps.word_count()
        >>> history = run(Static(), app.simulator(workload.Constant(140e3), parallelism=3), steps=20)
        >>> print(advise(history, policies=["ds2"], engine="storm").settings("ds2").code)
        storm rebalance TOPOLOGY -e source=2 -e flat_map=2 -e count=5 -e sink=4
        """
        name = policy or self.choice
        if name is None:
            raise NotFoundError(
                "no recommendation that keeps up", expected="a policy's name", fix="as in settings('ds2')"
            )
        target = self[name].deployment
        if target is None:
            raise NotFoundError(
                f"no deployment of {name!r}", expected="a policy with a recommendation", fix=self[name].note
            )
        now = self.evidence.windows[-1].deployment
        vertices = self.history.about.get("vertices")
        ids = {str(k): str(v) for k, v in vertices.items()} if isinstance(vertices, Mapping) else {}
        return settings(self.history.topology, now, target, self.engine, execution=self.needs.execution, vertices=ids)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The answer: the bottleneck, the recommendations, the choice among them, and their limits."""
        return words.sentences(self)

    @property
    def told(self) -> str:
        """The recommendations in one sentence."""
        return words.policy_sentences(self)[0]

    @cached_property
    def figures(self) -> tuple[Plot, Plot]:
        """The loads of the operators, and the recommendation of each policy."""
        from .. import plots

        return plots.loads(self), plots.recommended(self)

    def report(self, path: str | Path | None = None, *, title: str = "", overwrite: bool = False) -> Path:
        """Write the advice as one HTML file and return its path.

        Parameters
        ----------
        path : str or Path, optional
            The file, by default a new one below reports/.
        title : str, optional
            The title of the page, by default "Advice for" and the source of the recording.
        overwrite : bool
            Replace an existing file.
        """
        from .presentation import write_page

        return write_page(self, path, title=title, overwrite=overwrite)

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
