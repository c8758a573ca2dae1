"""EDRP's hour on ANSNET (Table 8.3 and the text around it), and the printed facts that hold with other ends.

The thesis does not name the nodes of source and sink. `PINS` were searched such that all facts hold; `sampled_ends` are
random, and show how often each fact holds elsewhere. `python -m reproduction --only edrp` computes both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, permutations
from typing import TYPE_CHECKING, Any

from dspkit.placement import Problem, Solution
from dspkit.placement.datasets import SETTINGS, taxi_query

from .network import ansnet
from .study import LITERAL, PRINTED, free_way, runs, summary

if TYPE_CHECKING:
    import pandas as pd


PINS = ("Greensboro", "Los Angeles")  # of data source and globalRank
DRAWN = 30
OTHERS = ("balanced", "response time", "cost")
TOLD = {  # the times at which operators are doubled and reversed, from the text
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
    """Return which facts hold in an hour of all objectives, and whether all but the last one do."""
    found = {name: bool(fact(hour)) for name, fact in FACTS.items()}
    return {**found, "all but the last": all(list(found.values())[:-1])}


def query(ends: tuple[str, str] = PINS, **settings: Any) -> Problem:
    """Return the taxi query on ANSNET."""
    return taxi_query(network=ansnet(), pinned=ends, **settings)


def sampled_ends(count: int = DRAWN, seed: int = 0) -> list[tuple[str, str]]:
    """Return random pairs of nodes for source and sink, of all 210; a smaller sample is the start of a larger one."""
    ends = list(permutations(ansnet().nodes, 2))
    random.Random(seed).shuffle(ends)
    return ends[:count]


def events(found: Sequence[Solution]) -> list[dict[str, Any]]:
    """Return each change of an hour: time, operators scaled out and in, and the number of migrated ones."""
    made = []
    for minute, answer in enumerate(found):
        acts = answer.actions
        if answer.downtime_s > 0:
            out, back = ([o for o, act in acts.items() if act == kind] for kind in ("scale-out", "scale-in"))
            made.append({"minute": minute, "out": out, "in": back, "moved": list(acts.values()).count("migrate")})
    return made


def shown() -> list[dict[str, Any]]:
    """Return the hour with `PINS`: one row per objective, with its list of changes."""
    here = query()
    return [
        {"objective": name, "way": free_way(here), **summary(found), "events": events(found)}
        for name, found in runs(here).items()
    ]


def elsewhere(ends: Iterable[tuple[str, str]] | None = None) -> pd.DataFrame:
    """Return one row per objective and pair of ends."""
    import pandas as pd

    rows = []
    for source, sink in sampled_ends() if ends is None else ends:
        here = query((source, sink))
        for name, found in runs(here).items():
            rows.append({"objective": name, "ends": f"{source} - {sink}", "way": free_way(here), **summary(found)})
    return pd.DataFrame(rows).set_index(["objective", "ends"])


def facts(hours: pd.DataFrame) -> pd.DataFrame:
    """Return which facts hold for each network or pair of ends, and the nodes on its shortest paths."""
    import pandas as pd

    rows = {}
    for at, some in hours.groupby(level=1, sort=False):
        hour: Any = some.droplevel(1).to_dict("index")
        rows[at] = {"way": hour["baseline"]["way"], **holds(hour)}
    return pd.DataFrame.from_dict(rows, orient="index")
