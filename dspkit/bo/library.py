"""What was learned at earlier rates: a model for each rate, kept in one file that people can read."""

from __future__ import annotations

import json
import math
import operator
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any

from .. import files
from ..errors import DspkitError, FileError, KnobError, MetricError
from ._given import real
from .score import Sample
from .space import MOST, Config, Lattice

FORMAT, KIND = 1, "dspkit model library"
MOST_SCORE = 1e6  # of a score of one's own, either way; more would drown the arithmetic


@dataclass(frozen=True)
class Model:
    """The samples of one rate, and the box they lie in; the process itself is fitted again when it is asked."""

    rate: float  # records/s
    base: Config
    most: Config
    samples: tuple[Sample, ...]

    def __post_init__(self) -> None:
        if not _number(self.rate) or not isinstance(self.samples, list | tuple) or not self.samples:
            raise MetricError(
                f"a model of {self.rate!r:.60} records/s with samples {self.samples!r:.60}",
                expected="a rate >= 0 and a sample at least",
                fix="keep what was really run",
            )
        box = Lattice(self.base, self.most)
        plain = tuple(_plain(s, len(box.base)) for s in self.samples)
        for name, value in (("base", box.base), ("most", box.most), ("samples", plain)):
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
        names, models = self.operators, self.models
        if isinstance(names, str) or not all(isinstance(n, str) for n in names) or len(set(names)) != len(names):
            raise KnobError(f"operators {names!r:.60}", expected="a name for each, each once", fix="topology.order")
        if wrong_kind := [m for m in models if not isinstance(m, Model)]:
            raise KnobError(f"{wrong_kind[0]!r:.60}", expected="models", fix="see Model")
        if wrong := [m for m in self.models if len(m.base) != len(self.operators)]:
            raise KnobError(
                f"a model of {len(wrong[0].base)} operators among {self.operators}",
                expected="one job's",
                fix="see Library",
            )

    def nearest(self, rate: float) -> Model:
        """The model whose rate is nearest; of two as near, the one of the higher rate."""
        real(rate, "rate", low=0.0)
        if not self.models:
            raise MetricError("an empty library", expected="one model at least", fix="finish a search first")
        return min(self.models, key=lambda m: (abs(m.rate - rate), -m.rate))

    def add(self, model: Model, within: float = 0.0) -> Library:
        """With this model in the place of one whose rate is nearer than `within`, a share of it."""
        if not isinstance(model, Model):
            raise KnobError(f"{model!r:.60}", expected="a Model", fix="see Model")
        real(within, "within", low=0.0)
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
        head = f'{{"format": {FORMAT}, "kind": {json.dumps(KIND)}, "operators": {json.dumps(self.operators)},'
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
            if told["kind"] != KIND:
                raise FileError(f"{path} of kind {told['kind']!r:.60}", expected=KIND, fix="check the path")
            if told["format"] != FORMAT:
                raise FileError(
                    f"{path} of format {told['format']!r}", expected=f"format {FORMAT}", fix="update dspkit"
                )
            if not isinstance(told["operators"], list):
                raise TypeError("operators that are no list")
            return cls(tuple(told["operators"]), tuple(_model(m) for m in told["models"]))
        except FileError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
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


def _plain(sample: Any, operators: int) -> Sample:
    """The sample in Python's own numbers; a latency that never came (infinite) is one that is not known."""
    try:
        k, score, late = sample
        config = tuple(operator.index(n) for n in k)
        good = len(config) == operators and all(1 <= n <= MOST for n in config)
        value = float(score) if isinstance(score, Real) and not isinstance(score, bool) else math.nan
        known = late is not None and late != math.inf
        if not good or not abs(value) <= MOST_SCORE or (known and not _number(late)):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise MetricError(
            f"sample {sample!r:.80}",
            expected=f"instances from 1 up for each of {operators} operators, a score, a latency >= 0 or None",
            fix="keep jobs apart, and what was really run",
        ) from None
    return Sample(config, value, float(late) if known else None)


def _number(value: Any) -> bool:
    good = isinstance(value, Real) and not isinstance(value, bool)
    return good and 0 <= value < 1e300
