"""A laboratory for elastic data-stream processing: any scaling policy on any backend, from a notebook."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

# The module of each public name, which is loaded on first use to keep `import dspkit` fast.
_HOME = {
    "Backend": "core.policy",
    "Decision": "core.policy",
    "Deployment": "core.topology",
    "Latency": "core.metrics",
    "Operator": "core.topology",
    "OperatorMetrics": "core.metrics",
    "Policy": "core.policy",
    "Snapshot": "core.metrics",
    "Step": "core.policy",
    "Topology": "core.topology",
    "DspkitError": "core.errors",
    "Experiment": "experiment",
    "run": "experiment",
    "History": "core.history",
    "advise": "advice",
    "control_loop": "core.loop",
    "Plant": "simulator",
    "Simulator": "simulator",
    "simulate_many": "simulator",
    "cite": "core.references",
    "compare": "comparison",
}
_MODULES = tuple(
    "advice apps bo comparison core etp experiment forecasting loaders migration placement plots policies profiling"
    " report simulator spark testing ui workload".split()
)

__all__ = ["__version__", *_HOME, *_MODULES]  # noqa: PLE0604  (all are strings)


def __getattr__(name: str) -> Any:
    if name in _HOME or name in _MODULES:
        from .core.lazy import import_part

        home = import_part(f".{_HOME.get(name, name)}", __name__)
        return getattr(home, name) if name in _HOME else home
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
