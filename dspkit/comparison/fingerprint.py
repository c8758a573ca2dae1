"""What a run depends on, in sixteen letters: a finished row is taken again only if nothing of this has changed.

Everything counts that a value holds, whatever its repr shows, and the code of what it is made of: of dspkit all modules
that a run may pass through, of other classes and functions (a notebook's, say) their compiled methods.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

from ..errors import KnobError
from .runs import Run

_ELSEWHERE = ("ui", "plots", "spark", "lessons", "reproduce", "apps", "report", "notebook", "kernel", "references")


def fingerprint(run: Run) -> str:
    """Equal for equal runs, in every process; names are no part of it."""
    # without noise the oracle is the same for every seed
    seed = 0 if run.policy is None and run.app.plant.noise == 0 else run.seed
    app = (run.app.topology, run.app.plant, run.app.workers, run.app.placement, run.app.start)
    parts = (run.policy, run.workload, app, run.start, run.slo_s, run.rules, seed, run.failed)
    return hashlib.sha256("\x1f".join((_dspkit(), *_words(parts))).encode("utf-8", "replace")).hexdigest()[:16]


def _words(value: Any) -> Iterator[str]:
    kind = type(value)
    if value is None or kind in (bool, int, str, bytes):
        yield f"{kind.__name__} {value!r}"
    elif isinstance(value, Enum):
        yield f"enum {kind.__qualname__}.{value.name}"
    elif isinstance(value, float):
        yield f"float {float(value).hex() if math.isfinite(value) else value}"
    elif hasattr(value, "dtype") and hasattr(value, "tobytes"):
        yield f"array {value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    elif isinstance(value, Mapping):
        yield f"map {len(value)}"
        yield from sorted("\x1e".join((*_words(k), *_words(v))) for k, v in value.items())
    elif isinstance(value, (set, frozenset)):
        yield f"set {len(value)}"
        yield from sorted("\x1e".join(_words(v)) for v in value)
    elif isinstance(value, (list, tuple)):
        yield f"{kind.__qualname__} {len(value)}"
        for item in value:
            yield from _words(item)
    elif isinstance(value, type):
        yield f"class {_code_of(value)}"
    elif isinstance(value, (FunctionType, MethodType)):
        yield f"function {_function(value)}"
    elif isinstance(value, partial):
        yield from _words(("partial", value.func, value.args, value.keywords))
    elif is_dataclass(value):
        yield f"object {_code_of(kind)}"
        for f in fields(value):
            yield f.name
            yield from _words(getattr(value, f.name))
    elif isinstance(getattr(value, "__dict__", None), dict):
        yield f"object {_code_of(kind)}"
        yield from _words(vars(value))
    else:
        text = repr(value)
        if " at 0x" in text:
            raise KnobError(text[:100], expected="plain values and dataclasses", fix="so that a run can be named")
        yield text


def _code_of(kind: type) -> str:
    """A class by its name, and by its code if it is not ours."""
    known = f"{kind.__module__}.{kind.__qualname__}"
    if kind.__module__.partition(".")[0] in ("dspkit", "builtins"):
        return known
    made = []
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] not in ("dspkit", "builtins", "typing", "abc", "numpy"):
            made += [_function(f) for f in _functions(base)]
    return f"{known} {' '.join(made)}"


def _functions(kind: type) -> Iterator[Any]:
    for name in sorted(vars(kind)):
        value = vars(kind)[name]
        value = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(value, FunctionType):
            yield value


def _function(function: Any) -> str:
    inner = getattr(function, "__func__", function)
    held = [cell.cell_contents for cell in inner.__closure__ or () if not isinstance(cell.cell_contents, type)]
    bound = [function.__self__] if isinstance(function, MethodType) else []
    more = "\x1e".join(_words((inner.__defaults__, inner.__kwdefaults__, held, bound)))
    return hashlib.sha256(f"{inner.__qualname__} {_compiled(inner.__code__)} {more}".encode()).hexdigest()[:16]


def _compiled(code: CodeType) -> str:
    inner = [_compiled(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {inner}"


@lru_cache(maxsize=1)
def _dspkit() -> str:
    """The contents of all modules that a run may pass through."""
    home = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        part = path.relative_to(home).parts[0].removesuffix(".py").partition("_")[0]
        if part not in _ELSEWHERE:
            digest.update(path.relative_to(home).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()
