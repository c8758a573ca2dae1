"""The Explorer on live Spark: the same controls, a real job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import apps
from ..core import Backend, Deployment, Policy
from ..frozen import FrozenMap
from ..knobs import call
from .explorer import Explorer
from .run import Run
from .settings import Settings, imports


@dataclass(frozen=True)
class LiveSettings(Settings):
    """All that a live run depends on; `job` has what SparkJob was told besides."""

    job: Mapping[str, Any] = field(default_factory=FrozenMap)

    def code(self) -> str:
        """The same run as code to copy."""
        job = "".join(f", {name}={value!r}" for name, value in self.job.items())
        load = f"app.load * {self.scale:g}" if self.scale != 1 else "app.load"
        loop = [f"steps={self.windows}"] + ([f"settle={self.settle}"] if self.settle else [])
        return (
            f"from dspkit import Deployment, apps, plots, run\n{imports(self.policy)}\n"
            f"app = apps.available()[{self.app!r}]()\n"
            f"start = Deployment({dict(self.parallelism)})\n"
            f"with app.job({load}, deployment=start, window_s={self.window_s:g}{job}) as job:\n"
            f"    history = run({call(self.policy)}, job, {', '.join(loop)})\n"
            f"plots.timeline(history, target_latency_s={self.target_latency_s:g})"
        )


class LiveExplorer(Explorer):
    """Controls and a live chart of any policy on an application that runs on a local Spark.

    Start brings Spark up (some ten seconds), Stop ends it; nothing stays behind. The load is that of the next start.
    """

    def __init__(
        self, app: str = "word_count", policy: str | Policy = "ds2", *, windows: int = 60, window_s: float = 2.0,
        **settings: Any,
    ):  # fmt: skip
        """`settings` are SparkJob's, as `mode="microbatch"`."""
        self._window_s, self._job_settings = window_s, settings
        super().__init__(app, policy, windows=windows, speed=0)
        self.view.speed.layout.display = "none"  # time is real here
        self.view.settle.value = 1  # a rescale is over in less than a window

    @staticmethod
    def _apps() -> Mapping[str, Callable[[], Any]]:
        return apps.available()

    def _settings(self, app: str, policy: Policy, windows: int) -> Settings:
        return LiveSettings(
            app, policy, windows=windows, window_s=self._window_s, settle=1, job=FrozenMap(self._job_settings)
        )

    def _machines(self) -> None:
        """Who runs the cluster knows; a backend that cannot do what is asked says so."""

    def _begin(self, run: Run) -> Backend:
        s = run.settings
        job: Backend = self._now.job(
            self._now.load * s.scale,
            deployment=Deployment(s.parallelism),
            window_s=s.window_s,
            **self._job_settings,
        )
        return job
