"""A view of two days of taxis under two layers of managers, beside a run that grants all requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any

import ipywidgets as w

from dspkit import plots
from dspkit.core import ArgumentError, History, call, knobs_of
from dspkit.policies.hierarchical import Hierarchical
from dspkit.ui.controls import ROOM, WIDE, Errors, control, read_control
from dspkit.ui.view import show_beside, show_plot

from .study import summary, two_days

KNOBS = (
    "grants",
    "beta",
    "tokens_per_min",
    "rule",
    "scale_out_above",
    "scale_in_margin",
    "migrate_above",
    "room",
    "include_self",
)


class TwoDays:
    """Sliders of the managers' knobs, and the resulting run. Display it, or use it from code:

    `page.sliders["beta"].value = 0.5; page.history; page.row`
    """

    def __init__(
        self, policy: Hierarchical | None = None, *, names: Sequence[str] = KNOBS, days: float = 2.0, seed: int = 1
    ):
        """Make controls for the knobs `names`; `seed` selects the load."""
        self.policy = Hierarchical(signal="cpu") if policy is None else policy
        known = {k.name: k for k in knobs_of(self.policy)}
        if unknown := set(names) - set(known):
            raise ArgumentError(f"knobs {sorted(unknown)}", expected=f"some of {sorted(known)}", fix="use these names")
        self._days, self._seed = days, seed
        self._all = two_days(Hierarchical(grants="all", signal="cpu"), seed=seed, days=days)
        made = {name: control(known[name]) for name in names}
        self.sliders: dict[str, Any] = {name: widget for name, widget in made.items() if widget is not None}
        self.seed = w.IntSlider(min=0, max=20, value=seed, description="load", tooltip="which swings of the load",
                                continuous_update=False, style=WIDE, layout=ROOM)  # fmt: skip
        self._chart = w.Output()
        self._said, self._code, self._errors = w.HTML(), w.HTML(), Errors()
        moved = self._errors.guard("run", lambda _: self.turn())
        for widget in self.sliders.values():
            if hasattr(widget, "continuous_update"):
                widget.continuous_update = False  # one run per move would lag behind the slider
            widget.observe(moved, "value")
        self.seed.observe(moved, "value")
        left = w.VBox([*self.sliders.values(), self.seed, self._said], layout={"flex": "0 0 350px"})
        right = w.VBox([self._chart, self._code], layout={"flex": "1 1 600px", "min_width": "600px"})
        self.view = w.VBox([self._errors.widget, w.HBox([left, right], layout={"flex_flow": "row wrap"})])
        self.view.add_class("dspkit")
        self.history: History
        self.row: dict[str, Any]
        self.turn()

    @property
    def error(self) -> str:
        """The current error as HTML."""
        return str(self._errors)

    def turn(self) -> History:
        """Run with the values of the controls, and show the result."""
        policy = replace(self.policy, **{name: read_control(widget) for name, widget in self.sliders.items()})
        if self.seed.value != self._seed:
            self._seed = self.seed.value
            self._all = two_days(Hierarchical(grants="all", signal="cpu"), seed=self._seed, days=self._days)
        self.history = two_days(policy, seed=self._seed, days=self._days)
        self.policy, self.row = policy, summary(self.history)
        runs = {"all are granted": self._all, "as set": self.history}
        self.picture = plots.managed(runs, target_latency_s=policy.target_latency_s)
        show_plot(self._chart, self.picture, bar=False)
        base, r = summary(self._all), self.row
        self._said.value = (
            f"<p style='line-height:1.4'><b>{r['availability']:.1%}</b> available "
            f"(all granted: {base['availability']:.1%}), "
            f"<b>{r['reconfigurations']}</b> reconfigurations ({base['reconfigurations']}), "
            f"{r['replicas_mean']:.1f} replicas on average ({base['replicas_mean']:.1f}), "
            f"above 200 ms in {r['above_R_max']:.1%} of the windows ({base['above_R_max']:.1%}).</p>"
        )
        code = f"two_days({call(policy)}, seed={self._seed})"
        imports = (
            "from dspkit.policies.hierarchical import Hierarchical\n"
            "from reproduction.hierarchical.study import two_days"
        )
        self._code.value = f"<b>The same as code</b><pre>{escape(imports)}\nhistory = {escape(code)}</pre>"
        return self.history

    def _ipython_display_(self) -> None:
        show_beside(self, self.picture, self.view)
