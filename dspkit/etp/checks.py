"""What `dspkit.etp` refuses, in words: operators that the graph does not have, numbers that are none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

from ..errors import DeploymentError, MetricError
from .graph import Graph


def rates_fit(
    g: Graph, processing: Mapping[Any, float], emit: Mapping[Any, float], outside: Mapping[Any, float]
) -> None:
    """Rates are of operators and edges of the graph, finite, and not below 0."""
    strange = [repr(o) for o in dict.fromkeys((*processing, *outside)) if o not in g.children]
    strange += [repr(edge) for edge in emit if edge[1] not in g.children.get(edge[0], ())]
    if strange:
        raise MetricError(
            f"rates of {', '.join(strange[:3])}", expected=f"operators and edges of the graph: {_shown(g)}",
            fix="check the names",
        )  # fmt: skip
    for column in (processing, emit, outside):
        if not all(0 <= x < math.inf for x in column.values()):
            of, value = next((o, x) for o, x in column.items() if not 0 <= x < math.inf)
            raise MetricError(
                f"rate {value!r} of {of!r}", expected="a finite number >= 0", fix="leave out what was not measured"
            )


def whole(what: str, value: Any, least: int = 0) -> int:
    """A count from `least` up."""
    number = value if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or number < least:
        raise DeploymentError(f"{value!r} {what}", expected=f"a whole number from {least} up", fix="count what runs")
    return int(number)


def counted(g: Graph, instances: Mapping[Any, int]) -> dict[Any, int]:
    """At least one instance of each operator."""
    if missing := [repr(o) for o in g.order if o not in instances]:
        raise DeploymentError(
            f"no number of instances of {', '.join(missing[:3])}", expected="one for each operator", fix="count all"
        )
    return {o: whole(f"instances of {o!r}", instances[o], 1) for o in g.order}


def placed_in(g: Graph, placement: Iterable[tuple[Any, int]]) -> None:
    """Instances are of operators of the graph."""
    if strange := sorted({repr(o) for o, _ in placement if o not in g.children}):
        raise DeploymentError(
            f"instances of {', '.join(strange[:3])}",
            expected=f"operators of the graph: {_shown(g)}",
            fix="check the names",
        )


def some(machines: Sequence[Any], what: str) -> None:
    if not machines:
        raise DeploymentError(f"{what} on no machine", expected="at least one machine", fix="name it")


def _shown(g: Graph) -> str:
    return ", ".join(map(repr, g.order[:10])) + (", …" if len(g.order) > 10 else "")
