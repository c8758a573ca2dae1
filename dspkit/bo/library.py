"""What was learned at earlier rates: a model for each rate, kept in one file that people can read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import files
from ..errors import DspkitError, FileError, KnobError, MetricError
from .score import Sample
from .space import Config, Lattice

FORMAT = 1


@dataclass(frozen=True)
class Model:
    """The samples of one rate, and the box they lie in; the process itself is fitted again when it is asked."""

    rate: float  # records/s
    base: Config
    most: Config
    samples: tuple[Sample, ...]

    def __post_init__(self) -> None:
        if not _number(self.rate) or not self.samples:
            raise MetricError(
                f"a model of {self.rate!r} records/s with {len(self.samples)} samples",
                expected="a rate >= 0 and a sample at least",
                fix="keep what was really run",
            )
        box = Lattice(self.base, self.most)
        if any(len(s.k) != len(box.base) or not _number(s.score) for s in self.samples):
            raise MetricError(
                "samples of other operators, or without a score", expected="one job's", fix="keep jobs apart"
            )
        plain = (s._replace(k=tuple(map(int, s.k)), score=float(s.score)) for s in self.samples)  # numpy's too
        for name, value in (("base", box.base), ("most", box.most), ("samples", tuple(plain))):
            object.__setattr__(self, name, value)

    @cached_property
    def lattice(self) -> Lattice:
        return Lattice(self.base, self.most)


@dataclass(frozen=True)
class Library:
    """Models by rate. `operators` name what the numbers of a configuration mean, in their order.

    >>> two = [Model(r, (1, 2), (9, 9), (Sample((1, 2), 0.9),)) for r in (20e3, 80e3)]
    >>> Library(("map", "join"), tuple(two)).nearest(50e3).rate  # of two as near, the higher rate
    80000.0
    """

    operators: tuple[str, ...] = ()
    models: tuple[Model, ...] = ()

    def __post_init__(self) -> None:
        if wrong := [m for m in self.models if len(m.base) != len(self.operators)]:
            raise KnobError(
                f"a model of {len(wrong[0].base)} operators among {self.operators}",
                expected="one job's",
                fix="see Library",
            )

    def nearest(self, rate: float) -> Model:
        """The model whose rate is nearest; of two as near, the one of the higher rate."""
        if not self.models:
            raise MetricError("an empty library", expected="one model at least", fix="finish a search first")
        return min(self.models, key=lambda m: (abs(m.rate - rate), -m.rate))

    def add(self, model: Model, within: float = 0.0) -> Library:
        """With this model in the place of one whose rate is nearer than `within`, a share of it."""
        kept = [m for m in self.models if abs(m.rate - model.rate) > within * model.rate]
        return Library(self.operators, tuple(sorted((*kept, model), key=lambda m: m.rate)))

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write it as JSON, a line a sample."""
        models = ",\n".join(
            f' {{"rate_per_s": {json.dumps(m.rate)}, "base": {list(m.base)}, "most": {list(m.most)}, "samples": [\n'
            + ",\n".join(f"  {json.dumps(s._asdict())}" for s in m.samples)
            + "\n ]}"
            for m in self.models
        )
        head = f'{{"format": {FORMAT}, "kind": "dspkit model library", "operators": {json.dumps(self.operators)},'
        text = f'{head}\n"models": [\n{models}\n]}}\n'
        return files.write(path, lambda p: p.write_text(text, encoding="utf-8"), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Library:
        """Read it, or raise a FileError that says what is wrong with the file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise FileError(f"no file {path}", expected="a saved library", fix="check the path") from error
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"{path}: {error}", expected="a file of text", fix="check the path") from error
        try:
            told = json.loads(text)
            if told["format"] != FORMAT:
                raise FileError(
                    f"{path} of format {told['format']!r}", expected=f"format {FORMAT}", fix="update dspkit"
                )
            operators = tuple(told["operators"])
            if not all(isinstance(name, str) for name in operators):
                raise TypeError("operators that are not names")
            return cls(operators, tuple(_model(m) for m in told["models"]))
        except FileError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            said = str(error) if isinstance(error, DspkitError) else f"{type(error).__name__}: {error}"
            raise FileError(
                f"{path}, not a model library ({said})", expected="what Library.save() wrote", fix="save it again"
            ) from error


def _model(told: dict[str, Any]) -> Model:
    samples = []
    for s in told["samples"]:
        late = s.get("latency_s")
        if not (late is None or _number(late)) or not all(type(v) is int for v in s["k"]):
            raise ValueError(f"sample {s}")
        samples.append(Sample(tuple(s["k"]), s["score"], late))
    return Model(told["rate_per_s"], tuple(told["base"]), tuple(told["most"]), tuple(samples))


def _number(value: Any) -> bool:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    return good and math.isfinite(value) and value >= 0
