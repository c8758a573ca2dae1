"""The types that all parts of dspkit share, and the loop that runs a policy on a backend.

| module | subject |
|---|---|
| `topology` | the graph of operators, and how many instances of each run |
| `metrics` | measurements of one window |
| `policy` | policies, backends, decisions, and which backend suits which policy |
| `loop`, `history` | the control loop and its recorded steps |
| `parameters`, `validation`, `errors` | typed settings, checks of arguments, kinds of errors |

Nothing here imports another part of dspkit.
"""

from __future__ import annotations

from .errors import (
    ArgumentError,
    BackendError,
    CapacityError,
    DeploymentError,
    DspkitError,
    FileError,
    InfeasibleError,
    KnobError,
    MetricError,
    NotFoundError,
    PlacementError,
    TopologyError,
    WorkloadError,
)
from .history import THEN, History, load_history, save_history
from .loop import control_loop, describe, record, run, run_together
from .metrics import EXECUTIONS, InstanceMetrics, Latency, OperatorMetrics, Snapshot, demands
from .parameters import (
    LINES,
    MOST_LETTERS,
    Knob,
    Knobs,
    LiteralError,
    at_pace,
    call,
    knob,
    knobs_of,
    read_literal,
    thresholds,
)
from .policy import Backend, BackendBase, Decision, Policy, PolicyKnobs, Step, changes, why_text
from .recovery import Recovery, RecoveryWatch, recoveries
from .topology import (
    Deployment,
    Edge,
    Operator,
    Topology,
    applications,
    assign_in_turn,
    instances_of,
    its_own,
    merge,
    named,
    prefixed,
)
from .validation import FrozenMap, plain

__all__ = [
    "EXECUTIONS",
    "LINES",
    "MOST_LETTERS",
    "THEN",
    "ArgumentError",
    "Backend",
    "BackendBase",
    "BackendError",
    "CapacityError",
    "Decision",
    "Deployment",
    "DeploymentError",
    "DspkitError",
    "Edge",
    "FileError",
    "FrozenMap",
    "History",
    "InfeasibleError",
    "InstanceMetrics",
    "Knob",
    "KnobError",
    "Knobs",
    "Latency",
    "LiteralError",
    "MetricError",
    "NotFoundError",
    "Operator",
    "OperatorMetrics",
    "PlacementError",
    "Policy",
    "PolicyKnobs",
    "Recovery",
    "RecoveryWatch",
    "Snapshot",
    "Step",
    "Topology",
    "TopologyError",
    "WorkloadError",
    "applications",
    "assign_in_turn",
    "at_pace",
    "call",
    "changes",
    "control_loop",
    "demands",
    "describe",
    "instances_of",
    "its_own",
    "knob",
    "knobs_of",
    "load_history",
    "merge",
    "named",
    "plain",
    "prefixed",
    "read_literal",
    "record",
    "recoveries",
    "run",
    "run_together",
    "save_history",
    "thresholds",
    "why_text",
]
