"""The ten most frequent routes of taxis (DEBS 2015, query 1), on made-up trips of the same shape.

A trip is a line of text. Routes lead from cell to cell of a grid of 300 x 300 cells of 500 m around the city's centre,
and trips that leave the grid, or make no sense, do not count. Routes are counted by window; a ranking of the best is
kept for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .base import KEPT, Answers, LiveApp, chain, forget
from .draw import draw, share

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

TOPOLOGY = chain("read", "parse", "in_area", "route", "count", "rank", stateful=["count", "rank"])
BEST, WINDOW_S = 10, 10
CELLS = 300
WEST, NORTH = -74.913585, 41.474937  # the corner of cell (0, 0), as in the challenge
_EAST_A_CELL, _SOUTH_A_CELL = 0.005986, 0.004491556  # degrees in 500 m
_CENTRE = 150  # cells from the corner
_NAMES = ("taxi", "at_s", "from_lon", "from_lat", "to_lon", "to_lat")
PARSED = "taxi int64, at_s float64, from_lon float64, from_lat float64, to_lon float64, to_lat float64"
_SHIFT = 1 << 34  # above the number of a route: CELLS ** 4 < 2 ** 33


def trips(ids: Array, event_s: Array) -> Any:
    """Trips as lines: many between a few popular places, 2 % without a position, 1 % far outside."""
    import numpy as np
    import pyarrow as pa

    taxi, odd = draw(ids, 1, 10_000), draw(ids, 2, 100)
    places = []
    for salt in (3, 4):  # the nearer to the centre, the more popular
        cell = _CENTRE + np.round(6 * (share(ids, 10 * salt) ** 3 - share(ids, 10 * salt + 1) ** 3))
        places.append(WEST + (cell + 0.8 * (share(ids, 10 * salt + 2) - 0.5)) * _EAST_A_CELL)
        cell = _CENTRE + np.round(6 * (share(ids, 10 * salt + 3) ** 3 - share(ids, 10 * salt + 4) ** 3))
        places.append(NORTH - (cell + 0.8 * (share(ids, 10 * salt + 5) - 0.5)) * _SOUTH_A_CELL)
    places[0] = np.where(odd < 2, 0.0, np.where(odd == 2, places[0] + 90, places[0]))
    columns = [c.tolist() for c in (taxi, event_s, *places)]
    text = [f"{t},{at:.3f},{a:.6f},{b:.6f},{c:.6f},{d:.6f}" for t, at, a, b, c, d in zip(*columns, strict=True)]
    return pa.RecordBatch.from_arrays([pa.array(text)], names=["trip"])


def parse(batches: Iterator[Any]) -> Iterator[Any]:
    """The fields of each line."""
    import pyarrow as pa

    for batch in batches:
        if batch.num_rows:
            fields = list(zip(*(line.split(",") for line in batch.column("trip").to_pylist()), strict=True))
            columns = [pa.array(map(int, fields[0]), pa.int64()), *(pa.array(map(float, f)) for f in fields[1:])]
            yield pa.RecordBatch.from_arrays(columns, names=_NAMES)


def in_area(batches: Iterator[Any]) -> Iterator[Any]:
    """Trips that begin and end on the grid."""
    import pyarrow as pa

    for batch in batches:
        cells = _cells(batch)
        inside = (cells[0] >= 0) & (cells[0] < CELLS)
        for cell in cells[1:]:
            inside &= (cell >= 0) & (cell < CELLS)
        yield batch.filter(pa.array(inside))


def route(batches: Iterator[Any]) -> Iterator[Any]:
    """The window and the route of each trip, as one number."""
    import pyarrow as pa

    for batch in batches:
        if batch.num_rows:
            a, b, c, d = _cells(batch)
            number = ((a * CELLS + b) * CELLS + c) * CELLS + d
            window = (batch.column("at_s").to_numpy() // WINDOW_S).astype("int64")
            yield pa.RecordBatch.from_arrays([pa.array(window * _SHIFT + number)], names=["route"])


def count(batches: Iterator[Any], known: dict[int, int]) -> Iterator[Any]:
    """How often each route came in each window; what it is now goes on, so that the last word is right."""
    import pyarrow as pa

    forget(known, lambda route: route // _SHIFT, KEPT)
    for batch in batches:
        fresh = {}
        for found in batch.column("route").value_counts().to_pylist():
            number = found["values"]
            known[number] = fresh[number] = known.get(number, 0) + found["counts"]
        columns = [[n // _SHIFT for n in fresh], [n % _SHIFT for n in fresh], list(fresh.values())]
        names = ["window", "route", "trips"]
        yield pa.RecordBatch.from_arrays([pa.array(c, pa.int64()) for c in columns], names=names)


def rank(batches: Iterator[Any], known: dict[int, list[dict[str, int]]]) -> Iterator[Any]:
    """The best of each window. Counts only grow: whoever falls out, and is better later, comes again."""
    forget(known, lambda window: window, KEPT)
    for batch in batches:
        rows = batch.to_pydict()
        for window, number, trips in zip(rows["window"], rows["route"], rows["trips"], strict=True):
            best = {r["route"]: r["trips"] for r in known.get(window, ())}
            best[number] = trips
            ranked = sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[:BEST]
            known[window] = [{"route": r, "trips": n} for r, n in ranked]
    yield from ()


def _cells(batch: Any) -> tuple[Array, Array, Array, Array]:
    """Column and row of the cells of start and end."""
    import numpy as np

    def cell(name: str, corner: float, size: float) -> Array:
        found: Array = np.floor((batch.column(name).to_numpy() - corner) / size + 0.5).astype(np.int64)
        return found

    return (
        cell("from_lon", WEST, _EAST_A_CELL), cell("from_lat", NORTH, -_SOUTH_A_CELL),
        cell("to_lon", WEST, _EAST_A_CELL), cell("to_lat", NORTH, -_SOUTH_A_CELL),
    )  # fmt: skip


def oracle(rows: Iterable[dict[str, Any]]) -> Answers:
    counts: dict[int, dict[int, int]] = {}
    for row in rows:
        _, at, *places = map(float, row["trip"].split(","))
        sizes = [(WEST, _EAST_A_CELL), (NORTH, -_SOUTH_A_CELL)] * 2
        cells = [int((x - corner) / size + 0.5) for x, (corner, size) in zip(places, sizes, strict=True)]
        if all(0 <= (x - corner) / size + 0.5 < CELLS for x, (corner, size) in zip(places, sizes, strict=True)):
            number = 0
            for cell in cells:
                number = number * CELLS + cell
            window = counts.setdefault(int(at // WINDOW_S), {})
            window[number] = window.get(number, 0) + 1
    best = {w: sorted(c.items(), key=lambda pair: (-pair[1], pair[0]))[:BEST] for w, c in counts.items()}
    return {
        "count": {w * _SHIFT + r: n for w, c in counts.items() for r, n in c.items()},
        "rank": {w: [{"route": r, "trips": n} for r, n in each] for w, each in best.items()},
    }


def app() -> LiveApp:
    """The ranking as an application."""
    import pyarrow as pa

    from ..spark import arrow, keyed

    ranking = pa.list_(pa.struct({"route": pa.int64(), "trips": pa.int64()}))
    functions = {
        "parse": arrow(parse, PARSED),
        "in_area": arrow(in_area, PARSED),
        "route": arrow(route, "route int64"),
        "count": keyed(count, "window int64, route int64, trips int64", key="route", state="int64"),
        "rank": keyed(rank, key="window", state=ranking),
    }
    micros = {"parse": 1000.0, "in_area": 200.0, "route": 400.0}
    return LiveApp("taxi", TOPOLOGY, functions, trips, "trip string", oracle, micros, (600, 2400), "trips")
