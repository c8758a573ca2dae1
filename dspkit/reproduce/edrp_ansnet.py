"""EDRP's hour on ANSNET (Table 8.3 and the text around it), and which printed facts hold with other ends.

The thesis does not say where source and sink are. `PINS` were searched for so that all facts come out; `sampled_ends`
are drawn, to see how often each holds elsewhere. `python -m dspkit.reproduce --only edrp` makes both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, permutations
from typing import TYPE_CHECKING, Any

from ..placement import Downtime, ElasticAnswer
from ..placement.ansnet import ansnet
from ..placement.taxi_query import SETTINGS, taxi_query
from .edrp import LITERAL, PRINTED, free_way, runs, summary

if TYPE_CHECKING:
    import pandas as pd

PINS = ("Greensboro", "Los Angeles")  # of data source and globalRank
DRAWN = 30
OTHERS = ("balanced", "response time", "cost")
TOLD = {  # when which operators are doubled, and undone, as the text has it
    "baseline": ("7 partialRank; 24 parser, filterByCoordinates, computeRouteID; peak countByWindow", "progressively"),
    "balanced": ("8 partialRank; 27 parser, filterByCoordinates, computeRouteID", "46 those of 27"),
    "response time": ("in two phases", "once, after 50"),
    "cost": ("8 partialRank; 26 to 30 stepwise", "as soon as possible; 53 partialRank"),
}
Hour = Mapping[str, Mapping[str, Any]]  # of each objective its `summary`


def _in_printed_order(hour: Hour, what: str, column: int) -> bool:
    order = sorted(SETTINGS, key=lambda name: PRINTED[name][column])
    return all(hour[a][what] < hour[b][what] for a, b in pairwise(order))


def _longer(hour: Hour, baseline: str) -> bool:
    return all(hour[baseline]["downtime_s"] >= 2.4 * hour[name]["downtime_s"] for name in OTHERS)


FACTS: dict[str, Callable[[Hour], bool]] = {
    "baseline: first scale-out at 7 min": lambda h: h["baseline"]["first_out_min"] == 7,
    "balanced: first scale-out at 8 min": lambda h: h["balanced"]["first_out_min"] == 8,
    "balanced: three reconfigurations": lambda h: h["balanced"]["reconfigurations"] == 3,
    "response time: two scale-outs, one scale-in, after 50 min": lambda h: (
        (h["response time"]["outs"], h["response time"]["ins"]) == (2, 1) and h["response time"]["last_in_min"] > 50
    ),
    "costs: cost < baseline < balanced < response time": lambda h: _in_printed_order(h, "cost", 1),
    "response times: baseline < response time < balanced < cost": lambda h: _in_printed_order(h, "R_ms", 0),
    "literal baseline down at least 2.4 times as long as each other": lambda h: _longer(h, LITERAL),
    "ours, which stays where a change gains nothing, as well": lambda h: _longer(h, "baseline"),
}


def holds(hour: Hour) -> dict[str, bool]:
    """Which facts hold in an hour of all objectives; all of a literal baseline at the end."""
    found = {name: bool(fact(hour)) for name, fact in FACTS.items()}
    return {**found, "all but the last": all(list(found.values())[:-1])}


def query(ends: tuple[str, str] = PINS, **settings: Any) -> Downtime:
    """The taxi query on ANSNET."""
    return taxi_query(network=ansnet(), pinned=ends, **settings)


def sampled_ends(count: int = DRAWN, seed: int = 0) -> list[tuple[str, str]]:
    """Source and sink on two different nodes, drawn from all 210 pairs; fewer are the first of more."""
    ends = list(permutations(ansnet().nodes, 2))
    random.Random(seed).shuffle(ends)
    return ends[:count]


def events(found: Sequence[ElasticAnswer]) -> list[dict[str, Any]]:
    """Each change of an hour: when, who was doubled, who undone, and how many only moved."""
    made = []
    for minute, answer in enumerate(found):
        acts = answer.actions
        if answer.downtime_s > 0:
            out, back = ([o for o, act in acts.items() if act == kind] for kind in ("scale-out", "scale-in"))
            made.append({"minute": minute, "out": out, "in": back, "moved": list(acts.values()).count("migrate")})
    return made


def shown() -> list[dict[str, Any]]:
    """The hour with `PINS`: a row for each objective, its changes told one by one."""
    here = query()
    return [
        {"objective": name, "way": free_way(here), **summary(found), "events": events(found)}
        for name, found in runs(here).items()
    ]


def elsewhere(ends: Iterable[tuple[str, str]] | None = None) -> pd.DataFrame:
    """A row for each objective and each pair of ends."""
    import pandas as pd

    rows = []
    for source, sink in sampled_ends() if ends is None else ends:
        here = query((source, sink))
        for name, found in runs(here).items():
            rows.append({"objective": name, "ends": f"{source} - {sink}", "way": free_way(here), **summary(found)})
    return pd.DataFrame(rows).set_index(["objective", "ends"])


def facts(hours: pd.DataFrame) -> pd.DataFrame:
    """Which facts hold on each network or with each pair of ends, and its free way, from rows of objectives."""
    import pandas as pd

    rows = {}
    for at, some in hours.groupby(level=1, sort=False):
        hour: Any = some.droplevel(1).to_dict("index")
        rows[at] = {"way": hour["baseline"]["way"], **holds(hour)}
    return pd.DataFrame.from_dict(rows, orient="index")
