"""A laboratory for elastic data-stream processing: any scaling policy on any backend, from a notebook."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Each public name and where it lives; loaded on first use, so that `import dspkit` costs next to nothing.
_HOME = {
    "Backend": "core",
    "Decision": "core",
    "Deployment": "core",
    "Latency": "core",
    "Operator": "core",
    "OperatorMetrics": "core",
    "Policy": "core",
    "Snapshot": "core",
    "Step": "core",
    "Topology": "core",
    "DspkitError": "errors",
    "History": "history",
    "mape": "loop",
    "run": "loop",
    "Plant": "plant",
    "Simulator": "simulator",
    "simulate_many": "simulator",
    "cite": "references",
    "compare": "comparison",
}
_MODULES = (
    "bo", "comparison", "etp", "lessons", "placement", "plant", "plots", "policies", "report", "topologies",
    "ui", "workload",
)  # fmt: skip

__all__ = ["__version__", *_HOME, *_MODULES]  # noqa: PLE0604  (all are strings)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
