"""Models learned at earlier rates, kept in one human-readable file."""

from __future__ import annotations

import json
import math
import operator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..core import ArgumentError, DspkitError, FileError, MetricError, files, untrusted
from ..core.validation import is_number, number
from .score import MOST_SCORE, Sample
from .space import MOST, Config, Lattice

FORMAT, KIND = 1, "dspkit model library"


@dataclass(frozen=True)
class Model:
    """The samples of one rate and the box that contains them; the process is fitted again when it is needed.

    Parameters
    ----------
    rate : float
        Load in records/s.
    base, max_parallelism : tuple of int
        Bounds of the configurations, by operator.
    samples : tuple of Sample
        The measured configurations, at least one.

    Examples
    --------
    >>> Model(20e3, (1, 2), (9, 9), (Sample((1, 2), 0.9),)).lattice.size
    72
    """

    rate: float
    base: Config
    max_parallelism: Config
    samples: tuple[Sample, ...]

    def __post_init__(self) -> None:
        if not _number(self.rate) or not isinstance(self.samples, list | tuple) or not self.samples:
            raise MetricError(
                f"a model of {self.rate!r:.60} records/s with samples {self.samples!r:.60}",
                expected="a rate >= 0 and at least one sample",
                fix="keep only measured configurations",
            )
        box = Lattice(self.base, self.max_parallelism)
        plain = tuple(_plain(s, len(box.base)) for s in self.samples)
        for name, value in (("base", box.base), ("max_parallelism", box.max_parallelism), ("samples", plain)):
            object.__setattr__(self, name, value)

    @cached_property
    def lattice(self) -> Lattice:
        """The box of the configurations."""
        return Lattice(self.base, self.max_parallelism)


@dataclass(frozen=True)
class Library:
    """Models by rate.

    Parameters
    ----------
    operators : tuple of str
        Names of the operators, in the order of the numbers of a configuration.
    models : tuple of Model
        The models.

    Examples
    --------
    >>> two = [Model(r, (1, 2), (9, 9), (Sample((1, 2), 0.9),)) for r in (20e3, 80e3)]
    >>> Library(("map", "join"), tuple(two)).nearest(50e3).rate  # a tie goes to the higher rate
    80000.0
    """

    operators: tuple[str, ...] = ()
    models: tuple[Model, ...] = ()

    def __post_init__(self) -> None:
        names, models = self.operators, self.models
        if isinstance(names, str) or not all(isinstance(n, str) for n in names) or len(set(names)) != len(names):
            raise ArgumentError(f"operators {names!r:.60}", expected="unique names", fix="pass topology.order")
        if wrong_kind := [m for m in models if not isinstance(m, Model)]:
            raise ArgumentError(f"{wrong_kind[0]!r:.60}", expected="models", fix="see Model")
        if wrong := [m for m in self.models if len(m.base) != len(self.operators)]:
            raise ArgumentError(
                f"a model of {len(wrong[0].base)} operators among {self.operators}",
                expected="models of one job",
                fix="see Library",
            )

    def nearest(self, rate: float) -> Model:
        """Return the model whose rate is nearest; a tie goes to the higher rate.

        Parameters
        ----------
        rate : float
            Load in records/s.

        Examples
        --------
        >>> Library(("map",), (Model(20e3, (1,), (9,), (Sample((1,), 0.9),)),)).nearest(1e3).rate
        20000.0
        """
        number(rate, "rate", low=0.0)
        if not self.models:
            raise MetricError("an empty library", expected="at least one model", fix="finish a search first")
        return min(self.models, key=lambda m: (abs(m.rate - rate), -m.rate))

    def add(self, model: Model, within: float = 0.0) -> Library:
        """Return the library with this model, which replaces models of nearly the same rate.

        Parameters
        ----------
        model : Model
            The model to add.
        within : float
            Relative difference of rates below which an older model is replaced.

        Examples
        --------
        >>> len(Library(("map",)).add(Model(20e3, (1,), (9,), (Sample((1,), 0.9),))).models)
        1
        """
        if not isinstance(model, Model):
            raise ArgumentError(f"{model!r:.60}", expected="a Model", fix="see Model")
        number(within, "within", low=0.0)
        kept = [m for m in self.models if abs(m.rate - model.rate) > within * model.rate]
        return Library(self.operators, tuple(sorted((*kept, model), key=lambda m: m.rate)))

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the library as JSON, one line per sample, and return the path.

        Parameters
        ----------
        path : str or Path
            The file.
        overwrite : bool
            Whether to replace an existing file.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     Library.load(Library(("map",)).save(f"{folder}/models.json")).operators
        ('map',)
        """
        models = ",\n".join(
            f' {{"rate_per_s": {json.dumps(m.rate)}, "base": {list(m.base)}, '
            f'"max_parallelism": {list(m.max_parallelism)}, "samples": [\n'
            + ",\n".join(f"  {json.dumps(s._asdict())}" for s in m.samples)
            + "\n ]}"
            for m in self.models
        )
        head = f'{{"format": {FORMAT}, "kind": {json.dumps(KIND)}, "operators": {json.dumps(self.operators)},'
        text = f'{head}\n"models": [\n{models}\n]}}\n'
        return files.write_atomically(path, lambda p: p.write_text(text, encoding="utf-8"), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Library:
        """Read a library, or raise a FileError that states the problem of the file.

        Parameters
        ----------
        path : str or Path
            A file that `save` wrote.

        Examples
        --------
        >>> Library.load("no_such_file.json")
        Traceback (most recent call last):
        dspkit.core.errors.FileError: got no file no_such_file.json; expected a saved library; check the path
        """
        text = untrusted.read_text(path, expected="a saved library")
        try:
            found = untrusted.parse_json(text)
            if found["kind"] != KIND:
                raise FileError(f"{path} of kind {found['kind']!r:.60}", expected=KIND, fix="check the path")
            if found["format"] != FORMAT:
                raise FileError(
                    f"{path} of format {found['format']!r}", expected=f"format {FORMAT}", fix="update dspkit"
                )
            if not isinstance(found["operators"], list):
                raise TypeError("operators are not a list")
            return cls(tuple(found["operators"]), tuple(_model(m) for m in found["models"]))
        except FileError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            said = str(error) if isinstance(error, DspkitError) else f"{type(error).__name__}: {error}"
            raise FileError(
                f"{path}, not a model library ({said})",
                expected="a file that Library.save() wrote",
                fix="save it again",
            ) from error


def _model(entry: dict[str, Any]) -> Model:
    samples = []
    for s in entry["samples"]:
        late = s.get("latency_s")
        if not (late is None or _number(late)) or not all(type(v) is int for v in s["k"]):
            raise ValueError(f"sample {s}")
        samples.append(Sample(tuple(s["k"]), s["score"], late, s.get("served")))
    return Model(entry["rate_per_s"], tuple(entry["base"]), tuple(entry["max_parallelism"]), tuple(samples))


def _plain(sample: Any, operators: int) -> Sample:
    """Return the sample in plain Python numbers; an infinite latency, of a job without output, counts as unknown."""
    try:
        k, score, late, *more = sample
        served = more[0] if len(more) == 1 else None
        config = tuple(operator.index(n) for n in k)
        good = len(config) == operators and all(1 <= n <= MOST for n in config)
        value = float(score) if is_number(score) else math.nan
        known = late is not None and late != math.inf
        others = [v for v, given in ((late, known), (served, served is not None)) if given]
        if not good or not abs(value) <= MOST_SCORE or not all(map(_number, others)) or len(more) > 1:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise MetricError(
            f"sample {sample!r:.80}",
            expected=f"instances from 1 up for each of {operators} operators, a score, latency and served share",
            fix="keep only measured configurations of one job",
        ) from None
    return Sample(config, value, float(late) if known else None, None if served is None else float(served))


def _number(value: Any) -> bool:
    return is_number(value) and 0 <= value < 1e300
