"""A node that fails under a running job, or a hot key: the backlog that it causes, and the time until it is gone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ... import plots
from ...apps import word_count
from ...core import Knobs, knob, run
from ...plots import Plot
from ...policies.ds2 import DS2
from ...policies.static import Static
from ...simulator import Fault as Fault_
from ...simulator import Node, NodeDown, NodeSlow, Skew
from ...workload import Constant

KINDS = ("node dies", "node is slow", "key runs hot")


@dataclass(frozen=True)
class Fault(Knobs):
    """Word count at 250 k records/s on three nodes, and something that goes wrong after five minutes.

    A node that dies takes its instances with it: the job is paused until they run elsewhere. A hot key binds a fifth
    of the records to one instance, which no other can help.
    """

    kind: str = knob(KINDS[0], "what goes wrong", choices=KINDS)
    duration_s: float = knob(300.0, "how long it lasts", low=30.0, high=900.0, unit="s")
    pause_s: float = knob(20.0, "how long a restart stops the job", low=0.0, high=60.0, unit="s")
    cores: int = knob(10, "cores of each node", low=8, high=32)
    policy: str = knob("ds2", "who decides: nobody, or DS2", choices=("static", "ds2"))

    def plot(self) -> Plot:
        """Draw the run as a timeline."""
        app = word_count()
        hit: Fault_ = {
            KINDS[0]: NodeDown(300, self.duration_s, node="node-1"),
            KINDS[1]: NodeSlow(300, self.duration_s, node="node-1", factor=0.3),
            KINDS[2]: Skew(300, self.duration_s, operator="count", share=0.2),
        }[self.kind]
        nodes = {f"node-{i}": Node(self.cores) for i in (1, 2, 3)}
        plant = replace(app.plant, nodes=nodes, pause_s=self.pause_s, faults=(hit,))
        job = replace(app, plant=plant, workload=Constant(250e3)).simulator(
            parallelism={"source": 4, "flat_map": 4, "count": 11, "sink": 10}, window_s=20, tick_s=1
        )
        history = run(DS2() if self.policy == "ds2" else Static(), job, steps=75)
        picture = plots.timeline(history, title=f"Fault: {self.kind} from 300 s to {300 + self.duration_s:g} s")
        lag = history.application.lag
        late = history.application.t[lag > 250e3]
        said = f"{self.kind.capitalize()} for {self.duration_s:g} s: at most {plots.si(lag.max())} records wait, " + (
            f"more than a second's worth until {late.max():g} s." if len(late) else "never more than a second's worth."
        )
        return replace(picture, summary=f"{said} {picture.summary}")
