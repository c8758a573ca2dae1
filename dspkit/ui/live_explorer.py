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
from .settings import Settings, imports, loop_arguments


@dataclass(frozen=True, repr=False)
class JobSettings(Settings):
    """All that a live run depends on; `job` has what SparkJob was told besides."""

    job: Mapping[str, Any] = field(default_factory=FrozenMap)

    def application(self) -> Any:
        return apps.available()[self.app]()

    def code(self) -> str:
        """The same run as code to copy."""
        job = "".join(f", {name}={value!r}" for name, value in self.job.items())
        load = f"app.load * {self.scale:g}" if self.scale != 1 else "app.load"
        return (
            f"from dspkit import Deployment, apps, plots, run\n{imports(self.policy)}\n"
            f"app = apps.available()[{self.app!r}]()\n"
            f"start = Deployment({dict(self.parallelism)})\n"
            f"with app.job({load}, deployment=start, window_s={self.window_s:g}{job}) as job:\n"
            f"    history = run({call(self.policy)}, job, {loop_arguments(self)})\n"
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

    @staticmethod
    def _apps() -> Mapping[str, Callable[[], Any]]:
        return apps.available()

    def _settings(self, **given: Any) -> Any:
        first = {"window_s": self._window_s, "settle": 1, "job": FrozenMap(self._job_settings)}
        return JobSettings(**{**first, **given})  # a rescale is over in less than a window

    def _shapes(self) -> list[Any]:
        return []  # the load is the application's own, and the machine is this one

    def _take_shapes(self, settings: Any, app: Any) -> None:
        """There is nothing to show."""

    def _begin(self, run: Run) -> Backend:
        s: Any = run.settings
        job: Backend = self._now.job(
            self._now.load * s.scale,
            deployment=Deployment(s.parallelism),
            window_s=s.window_s,
            **s.job,
        )
        return job
