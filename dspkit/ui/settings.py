"""What a view's run depends on: frozen, printed as code, read back from it; and the load under a person's hand."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, is_dataclass
from math import inf
from numbers import Integral, Real
from typing import Any, Self

from .. import literal, policies, predict, workload
from ..core import Policy
from ..errors import DspkitError, KnobError
from ..frozen import FrozenMap
from ..knobs import call
from ..plant.variants import OWN, variant
from ..policies import wrappers
from ..topologies import App
from ..topologies import available as applications
from ..workload import Workload


class Shown:
    """Base of settings: `print(settings)` is code, and `load` reads it back without running it."""

    def __repr__(self) -> str:
        return call(self)

    @classmethod
    def load(cls, text: str, known: Iterable[type] = ()) -> Self:
        """The settings that `text` prints. `known` are classes of your own that it may name.

        >>> print(Settings.load("Settings(app='star', policy=DS2(activation=2))"))
        Settings(app='star', policy=DS2(activation=2))
        """
        own = {c.__name__: c for c in (*_classes(), *_below(Shown), *known)}
        made = literal.read(text, own)
        if not isinstance(made, cls):
            raise DspkitError(
                f"a {type(made).__name__}", expected=f"{cls.__name__}(...)", fix="copy what the view shows as settings"
            )
        return made


_LEAST = {"windows": 1, "settle": 0, "seed": 0, "scale": 0.0, "target_latency_s": 0.0, "window_s": 0.0}
_KINDS: Mapping[str, tuple[Any, str]] = {
    "app": (str, "the name of an application"), "policy": (Policy, "a policy, as DS2()"),
    "plant": (str, "the name of a plant"), "workload": ((Workload, type(None)), "a load, as Sine()"),
    "parallelism": (Mapping, "a mapping of operators to instances"), "changes": (Mapping, "a mapping of values"),
}  # fmt: skip


def check(settings: Any) -> None:
    """Refuse in words what no run can have, before any control shows it: settings are pasted by people."""
    given = {f.name: getattr(settings, f.name) for f in fields(settings)}
    for name, value in given.items():
        expected = ""
        if name in _KINDS and not isinstance(value, _KINDS[name][0]):
            expected = _KINDS[name][1]
        elif name in _LEAST:
            least, whole = _LEAST[name], isinstance(_LEAST[name], int)
            right = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
            if not right or not least <= value < inf or (name.endswith("_s") and value == 0):
                expected = f"a {'whole ' * whole}number {'above' if name.endswith('_s') else 'from'} {least}"
        if expected:
            came = f"{type(settings).__name__}.{name} = {value!r}"
            raise KnobError(came, expected=expected, fix="copy what the view shows as settings")


def _below(cls: type) -> list[type]:
    below: list[type] = cls.__subclasses__()
    return [each for one in below for each in (one, *_below(one))]


def _classes() -> Iterable[type]:
    """Frozen dataclasses that settings are made of: policies and their guards, predictors, loads."""
    homes = {m for m in (inspect.getmodule(c) for c in policies.available().values()) if m is not None}
    for module in (*homes, wrappers, predict, workload):
        yield from (c for c in vars(module).values() if inspect.isclass(c) and is_dataclass(c))


@dataclass(frozen=True, repr=False)
class LiveSettings(Shown):
    """What a Live depends on, but for its backend, which is your own; `code()` is the same run without widgets."""

    policy: Policy
    windows: int = 90
    settle: int = 0
    seed: int = 0
    target_latency_s: float = 0.18

    def __post_init__(self) -> None:
        check(self)

    def code(self) -> str:
        """The same run as code to copy."""
        return (
            f"from dspkit import plots, run\n{imports(self.policy)}\n"
            f"with backend() as job:  # the function that was given to ui.Live\n"
            f"    history = run({call(self.policy)}, job, {loop_arguments(self)})\n"
            f"plots.timeline(history, target_latency_s={self.target_latency_s:g})"
        )


@dataclass(frozen=True, repr=False)
class OnApplication(Shown):
    """What a run on a simulated application depends on, whoever decides.

    Without a `workload` it is the application's own. `plant` is one of `plant.VARIANTS`, `changes` are fields of the
    plant that are changed after that.
    """

    app: str
    _: KW_ONLY
    scale: float = 1.0
    target_latency_s: float = 0.18
    windows: int = 90
    window_s: float = 10.0
    settle: int = 0
    seed: int = 0
    workload: Workload | None = None
    plant: str = OWN
    changes: Mapping[str, Any] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        check(self)

    def application(self) -> App:
        """The application as set: its own, on this plant, under this load."""
        if self.app not in applications():
            known = ", ".join(applications())
            raise DspkitError(f"application {self.app!r}", expected=f"one of {known}", fix="check the name")
        own = applications()[self.app]()
        return own.under(self.workload, variant(own.plant, self.plant, **self.changes))


@dataclass(frozen=True, repr=False)
class Settings(OnApplication):
    """All that an Explorer's run depends on; `code()` is the same run without widgets."""

    policy: Policy
    parallelism: Mapping[str, int] = field(default_factory=FrozenMap, kw_only=True)

    def code(self) -> str:
        """The same run as code to copy."""
        simulator = [f"scale={self.scale:g}"] if self.scale != 1 else []
        simulator += [f"parallelism={dict(self.parallelism)}"] if set(self.parallelism.values()) - {1} else []
        simulator += [f"window_s={self.window_s:g}"] if self.window_s != 10 else []
        simulator += [f"seed={self.seed}"] if self.seed else []
        names, made = application_code(self)
        return (
            f"from dspkit import {', '.join(sorted({'plots', 'run', *names}))}\n{imports(self.policy)}\n{made}"
            f"history = run({call(self.policy)}, app.simulator({', '.join(simulator)}), {loop_arguments(self)})\n"
            f"plots.timeline(history, target_latency_s={self.target_latency_s:g})"
        )


def application_code(settings: Any) -> tuple[set[str], str]:
    """What to import from dspkit, and the lines that make `app` as `settings` have it."""
    names, lines, told = {"topologies"}, [f"app = topologies.{settings.app}()"], []
    if settings.workload is not None:
        names.add("workload")
        told.append(f"workload.{call(settings.workload)}")
    if settings.plant != OWN or settings.changes:
        names.add("plant")
        more = "".join(f", {name}={value!r}" for name, value in settings.changes.items())
        told.append(f"plant=plant.variant(app.plant, {settings.plant!r}{more})")
    if told:
        lines.append(f"app = app.under({', '.join(told)})")
    return names, "".join(f"{line}\n" for line in lines)


def loop_arguments(settings: Any) -> str:
    """The arguments of `run` beside policy and backend."""
    more = {"steps": settings.windows, "settle": settings.settle, "seed": settings.seed}
    return ", ".join(f"{name}={value}" for name, value in more.items() if value or name == "steps")


def imports(policy: Any) -> str:
    """A line for the policy's class, and one for each policy that it wraps."""
    inner = [getattr(policy, f.name) for f in fields(policy)] if is_dataclass(policy) else []
    things = [thing for value in inner for thing in (value if isinstance(value, tuple) else (value,))]
    lines = dict.fromkeys(line for thing in things if is_dataclass(thing) for line in imports(thing).splitlines(True))
    return f"from {type(policy).__module__} import {type(policy).__name__}\n{''.join(lines)}"


class Dial(Workload):
    """A load as high as `scale()` says at the moment it is asked; all other loads are functions of time alone."""

    def __init__(self, load: Workload, scale: Callable[[], float]):
        self._load, self._scale = load, scale

    def rates(self, t: Any) -> Any:
        return self._scale() * self._load.rates(t)

    def __repr__(self) -> str:
        return f"{self._load} * {self._scale():g}"


def dials(app: App, scale: Callable[[], float]) -> dict[str, Workload]:
    """The app's load, turned by `scale()`, for each of its sources."""
    sources = app.topology.sources
    if isinstance(app.workload, Workload):
        share = app.workload if len(sources) == 1 else app.workload * (1 / len(sources))
        return dict.fromkeys(sources, Dial(share, scale))
    return {source: Dial(load, scale) for source, load in app.workload.items()}
