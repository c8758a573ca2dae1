"""Profiles: what ELYSIUM's four profilers learned of an application, in one readable file [elysium].

    | paper | here |
    |---|---|
    | SP, $\\alpha_{AB}$ | `selectivity`: mean and spread over time of each stream |
    | OCUP | `cpu`: of each operator, input rate of an instance → its share of a core |
    | OP | `overhead`: cores in use by a node's instances → share of the node's cores, the engine's own included |
    | ILP | any predictor of `dspkit.predict`; it is the policy that keeps the loads |

The paper calls OP's output both the overhead and the node's total; it is the total here, as in four of five places.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from numbers import Real
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from .. import files
from ..core import Edge
from ..errors import FileError, KnobError, MetricError
from ..frozen import FrozenMap
from ..history import History
from .curves import Array, Line, Net, Points, fit_curve, must_be_kind, percentage_error
from .samples import Samples, samples

if TYPE_CHECKING:
    import pandas as pd

FORMAT, FOLDS = 1, 10
_CURVES = {"line": Line, "points": Points, "net": Net}


@dataclass(frozen=True)
class Fitted:
    """A curve, how wrong it is on windows that it did not learn from, and what it saw."""

    curve: Line | Points | Net
    error: float | None = None  # mean of |error| / value on held-out windows, None where that is not known
    count: int = 0  # measurements
    seen: tuple[float, float] = (0.0, 0.0)  # least and greatest x of them

    def __post_init__(self) -> None:
        if not callable(self.curve) or len(self.seen) != 2:
            raise KnobError(
                f"{self.curve!r}, seen {self.seen!r}"[:100], expected="a curve, and two ends", fix="fit one"
            )
        _must_be_numbers("a curve's past", self.count, *self.seen)


@dataclass(frozen=True)
class Ratio:
    """A stream's selectivity: mean and standard deviation over time, and the mean error of the former."""

    mean: float
    spread: float = 0.0
    error: float | None = None
    count: int = 0

    def __post_init__(self) -> None:
        _must_be_numbers("a selectivity", self.mean, self.spread, self.count)


@dataclass(frozen=True)
class Profile:
    """What is known of an application: enough to say what a load will cost."""

    selectivity: Mapping[Edge, Ratio]
    cpu: Mapping[str, Fitted]
    overhead: Fitted | None = None  # None if nodes were not metered
    shares: Mapping[str, float] = field(default_factory=FrozenMap)  # of the load, by source

    def __post_init__(self) -> None:
        for name, kind in (("selectivity", Ratio), ("cpu", Fitted), ("shares", (int, float))):
            given = getattr(self, name)
            if not isinstance(given, Mapping) or not all(isinstance(v, kind) for v in given.values()):
                raise KnobError(f"{name}={given!r}"[:100], expected="a mapping, as `learn` makes it", fix="use `learn`")
        if not isinstance(self.overhead, Fitted | None):
            raise KnobError(f"overhead={self.overhead!r}"[:100], expected="a Fitted or None", fix="use `learn`")
        _must_be_numbers("the sources' shares", *self.shares.values())
        for name in ("selectivity", "cpu", "shares"):
            object.__setattr__(self, name, FrozenMap(getattr(self, name)))

    @property
    def summed(self) -> str:
        """In a few words, as code has no short ones for it."""
        return f"profile of {', '.join(self.cpu)}"

    @property
    def table(self) -> pd.DataFrame:
        """One row a profiler; errors are means of |error| / value on held-out windows."""
        import pandas as pd

        rows: list[tuple[Any, ...]] = [
            (
                "selectivity",
                f"{u} → {v}",
                f"{r.mean:.4g} ± {r.spread if r.spread > 1e-9 * r.mean else 0.0:.2g}",
                r.error,
                r.count,
            )
            for (u, v), r in self.selectivity.items()
        ]
        rows += [("CPU", name, _said(f), f.error, f.count) for name, f in self.cpu.items()]
        if self.overhead:
            rows.append(("overhead", "node", _said(self.overhead), self.overhead.error, self.overhead.count))
        return pd.DataFrame(rows, columns=["profiler", "of", "learned", "error", "samples"]).astype({"error": float})

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write one JSON file that `profile.load` reads back."""
        return files.write(path, lambda p: p.write_text(json.dumps(_packed(self), indent=1)), overwrite=overwrite)

    def _repr_html_(self) -> str:
        rows = ""
        for cells in self.table.astype(object).to_numpy().tolist():
            *words, error, count = cells
            shown = [*map(str, words), "" if error != error else f"{error:.2%}", str(count)]
            rows += f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in shown)}</tr>"
        heads = "".join(f"<th>{h}</th>" for h in ("profiler", "of", "learned", "error on held-out windows", "samples"))
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def learn(history: History, *, kind: str = "linear", mean_over_s: float = 60.0, seed: int = 0) -> Profile:
    """Profile an application from any run with a varying load; half an hour is enough.

    `kind` of the curves: "linear", "isotonic", the paper's "network", or "rprop": the same, trained as in the paper.
    Errors are those of tenfold cross-validation: each tenth of the run is predicted by what the others taught.
    """
    must_be_kind(kind, seed)
    told = samples(history, mean_over_s=mean_over_s)
    silent = [name for name, rows in told.cpu.items() if not rows]
    silent += [f"{u} → {v}" for (u, v), rows in told.selectivity.items() if not rows]
    if silent:
        raise MetricError(
            f"a run that tells nothing of {', '.join(silent)}", expected="windows in which all work", fix="run longer"
        )
    return Profile(
        {edge: _ratio(rows) for edge, rows in told.selectivity.items()},
        {name: _fitted(rows, kind, seed) for name, rows in told.cpu.items()},
        _fitted(told.nodes, kind, seed) if told.nodes else None,
        told.shares,
    )


def errors(profile: Profile, history: History, *, mean_over_s: float = 60.0) -> dict[str, float]:
    """Mean of |error| / value of a profile on another run, by profiler: its worst stream, operator, and the nodes."""
    if not isinstance(profile, Profile):
        raise KnobError(f"profile {profile!r}"[:100], expected="a Profile", fix="pass what `learn` returns")
    told: Samples = samples(history, mean_over_s=mean_over_s)
    found: dict[str, float] = {}
    for (u, v), r in profile.selectivity.items():
        if rows := told.selectivity.get((u, v)):
            found[f"{u} → {v}"] = percentage_error(Line(r.mean, 0.0), *_columns([(0.0, y) for y in rows])) or 0.0
    fits = dict(profile.cpu) | ({"node": profile.overhead} if profile.overhead else {})
    measured = {**told.cpu, "node": told.nodes}
    for name, fitted in fits.items():
        if measured.get(name):
            found[name] = percentage_error(fitted.curve, *_columns(measured[name])) or 0.0
    return found


def load(path: str | Path) -> Profile:
    """Read a profile, or raise a FileError that says what is wrong with the file."""
    fix = "load a file that Profile.save() wrote"
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, TypeError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: {error}", expected="a file to read", fix="check the path") from error
    try:
        told = json.loads(text)
        if told["format"] != FORMAT:
            raise FileError(f"{path} of format {told['format']!r}", expected=f"format {FORMAT}", fix="update dspkit")
        return _unpacked(told)
    except FileError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise FileError(f"{path}, not a dspkit profile: {error!r}", expected="a saved profile", fix=fix) from error


def _columns(rows: Any) -> tuple[Array, Array]:
    import numpy as np

    x, y = np.array(rows, dtype=float).reshape(-1, 2).T
    return x, y


def _ratio(rows: Any) -> Ratio:
    mean = fmean(rows)
    off = fmean(abs(r - mean) for r in rows) / mean if mean > 0 else None
    return Ratio(mean, stdev(rows) if len(rows) > 1 else 0.0, off, len(rows))


def _fitted(rows: Any, kind: str, seed: int) -> Fitted:
    x, y = _columns(rows)
    return Fitted(
        fit_curve(x, y, kind, seed=seed), _held_out(x, y, kind, seed), len(x), (float(x.min()), float(x.max()))
    )


def _held_out(x: Array, y: Array, kind: str, seed: int) -> float | None:
    """Error on each tenth of the run by what the others taught; tenths are stretches of time, as neighbours share
    windows."""
    import numpy as np

    if len(x) < 2 * FOLDS:
        return None
    found = []
    for part in np.array_split(np.arange(len(x)), FOLDS):
        others = np.setdiff1d(np.arange(len(x)), part)
        error = percentage_error(fit_curve(x[others], y[others], kind, seed=seed), x[part], y[part])
        found += [] if error is None else [error]
    return fmean(found) if found else None


def _said(f: Fitted) -> str:
    c = f.curve
    if isinstance(c, Line):
        return f"{c.intercept:.3g} + {c.slope:.4g} x"
    return f"{'isotonic' if isinstance(c, Points) else 'net'}, {c(f.seen[0]):.3g} to {c(f.seen[1]):.3g}"


def _packed(p: Profile) -> dict[str, Any]:
    names = {cls: name for name, cls in _CURVES.items()}

    def pack(f: Fitted | None) -> Any:
        return f and {**asdict(f), "curve": {"kind": names[type(f.curve)], **asdict(f.curve)}}

    return {
        "format": FORMAT,
        "selectivity": [{"start": u, "end": v, **asdict(r)} for (u, v), r in p.selectivity.items()],
        "cpu": {name: pack(f) for name, f in p.cpu.items()},
        "overhead": pack(p.overhead),
        "shares": dict(p.shares),
    }


def _unpacked(told: Mapping[str, Any]) -> Profile:
    def unpack(f: Mapping[str, Any]) -> Fitted:
        curve = dict(f["curve"])
        made = _CURVES[curve.pop("kind")](**{k: _tuples(v) for k, v in curve.items()})
        if not all(0 <= y < math.inf for y in (made(0.0), made(1e9))) or made.slope < 0:  # as of a net of other shape
            raise ValueError(f"{made!r} is no curve of CPU")
        return Fitted(made, _number(f["error"]), int(f["count"]), tuple(map(float, f["seen"])))  # type: ignore[arg-type]

    ratios = {
        (str(r["start"]), str(r["end"])): Ratio(
            float(r["mean"]), float(r["spread"]), _number(r["error"]), int(r["count"])
        )
        for r in told["selectivity"]
    }
    overhead = None if told["overhead"] is None else unpack(told["overhead"])
    shares = {str(s): float(share) for s, share in told["shares"].items()}
    return Profile(ratios, {str(n): unpack(f) for n, f in told["cpu"].items()}, overhead, shares)


def _tuples(value: Any) -> Any:
    """Lists of lists as tuples; anything but finite numbers is refused, as what is read decides what runs."""
    if isinstance(value, list):
        return tuple(_tuples(v) for v in value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _number(value: Any) -> float | None:
    return None if value is None else float(_tuples(value))


def _must_be_numbers(what: str, *values: Any) -> None:
    if not all(isinstance(x, Real) and not isinstance(x, bool) and 0 <= float(x) < math.inf for x in values):
        raise MetricError(f"{what} {values!r}"[:100], expected="finite numbers >= 0", fix="learn the profile again")
