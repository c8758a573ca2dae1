"""Settings of views: frozen, printed as code and read back from it; and the load that a slider scales."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, is_dataclass
from typing import Any, Self

from .. import apps, forecasting, policies, workload
from ..apps import App
from ..core import ArgumentError, FrozenMap, Policy, call
from ..core import parameters as literal
from ..core.parameters import code_of
from ..core.validation import is_number, is_whole
from ..experiment import SIDES, Experiment, application_of
from ..policies import guards as wrappers
from ..simulator import variant
from ..simulator.system.plant import OWN, Plant
from ..workload import Workload


class CodeRoundTrip:
    """Base of settings: `print(settings)` is code, and `load` reads it back without running it."""

    def __repr__(self) -> str:
        return call(self)

    @classmethod
    def load(cls, text: str, constructors: Iterable[type] = ()) -> Self:
        """Return the settings that a text prints; nothing in it is run.

        Parameters
        ----------
        text : str
            As printed by a view, a report, or `repr`.
        constructors : iterable of type
            Classes of your own that the text may name.

        Examples
        --------
        >>> print(Settings.load("Settings(app='star', policy=DS2(activation=2))"))
        Settings(app='star', policy=DS2(activation=2))
        """
        own = {c.__name__: c for c in (*_classes(), *_below(CodeRoundTrip), *constructors)}
        made = literal.read_literal(text, own)
        if not isinstance(made, cls):
            raise ArgumentError(
                f"a {type(made).__name__}", expected=f"{cls.__name__}(...)", fix="copy what the view shows as settings"
            )
        return made


GIVEN = "given"  # the backend that a view was made with
_BOUNDS: Mapping[str, tuple[float, float]] = {  # whole numbers have whole bounds
    "windows": (1, 1_000_000),
    "settle": (0, 1_000_000),
    "seed": (0, 2**63 - 1),
    "scale": (0.0, 1e9),
    "target_latency_s": (0.0, 1e9),
    "window_s": (0.0, 1e9),
}
_PLANT = frozenset(f.name for f in fields(Plant))
_NAME = re.compile(r"\w[\w .,:+/&()'-]{0,199}")  # of an application of your own
_KINDS: Mapping[str, tuple[Any, str]] = {
    "app": (str, "the name of an application"),
    "policy": (Policy, "a policy, as DS2()"),
    "plant": (str, "the name of a plant"),
    "workload": ((Workload, type(None)), "a load, as Sine()"),
    "parallelism": (Mapping, "a mapping of operators to instances"),
    "changes": (Mapping, "a mapping of values"),
    "options": (Mapping, "a mapping of arguments to values"),
}


def check_settings(settings: Any) -> None:
    """Refuse invalid settings before any control shows them: people paste them."""
    given = {f.name: getattr(settings, f.name) for f in fields(settings)}
    for name, value in given.items():
        expected = ""
        if name in _KINDS and not isinstance(value, _KINDS[name][0]):
            expected = _KINDS[name][1]
        elif name in _BOUNDS:
            (low, high), whole = _BOUNDS[name], isinstance(_BOUNDS[name][0], int)
            right = (is_whole if whole else is_number)(value)
            if not right or not low <= value <= high or (name.endswith("_s") and value == 0):
                start = "above" if name.endswith("_s") else "from"
                expected = f"a {'whole ' * whole}number {start} {low} to {high:g}"
        elif name == "changes" and (unknown := [key for key in value if key not in _PLANT]):
            value, expected = unknown[0], f"fields of a plant: {', '.join(sorted(_PLANT))}"
        elif name == "parallelism" and not all(isinstance(n, str) and is_whole(k) for n, k in value.items()):
            expected = "whole numbers of instances by operator"
        elif name == "app" and value not in apps.available() and not _NAME.fullmatch(value):
            expected = "the name of an application: letters, digits, spaces and .,:+-/&()'"
        if expected:
            shown = hex(value) if isinstance(value, int) and value.bit_length() > 1000 else repr(value)
            got = f"{type(settings).__name__}.{name} = {shown:.200}"
            raise ArgumentError(got, expected=expected, fix="copy what the view shows as settings")


def _below(cls: type) -> list[type]:
    below: list[type] = cls.__subclasses__()
    return [each for one in below for each in (one, *_below(one))]


def _classes() -> Iterable[type]:
    """Frozen dataclasses that settings are made of: policies and their guards, predictors, loads."""
    homes = {m for m in (inspect.getmodule(c) for c in policies.available().values()) if m is not None}
    for module in (*homes, wrappers, forecasting, workload):
        yield from (c for c in vars(module).values() if inspect.isclass(c) and is_dataclass(c))


@dataclass(frozen=True, repr=False)
class LiveSettings(CodeRoundTrip):
    """The settings of a `Live` view, whose backend is your own; `code()` is the same run without widgets.

    Parameters
    ----------
    policy : Policy
        The policy that decides.
    windows : int
        Length of the run in windows.
    settle : int
        Windows after each change that are observed and not decided on.
    seed : int
        Seed of the policy.
    target_latency_s : float
        The latency to aim at, a line in the chart.

    Examples
    --------
    >>> from dspkit.policies import DS2
    >>> LiveSettings(DS2(), windows=20)
    LiveSettings(policy=DS2(), windows=20)
    """

    policy: Policy
    windows: int = 90
    settle: int = 0
    seed: int = 0
    target_latency_s: float = 0.18

    def __post_init__(self) -> None:
        check_settings(self)

    def code(self) -> str:
        """Return the same run as code to copy."""
        return (
            f"from dspkit import plots, run\n{imports(self.policy)}\n"
            f"with backend() as job:  # the function that was given to ui.Live\n"
            f"    history = run({call(self.policy)}, job, {loop_arguments(self)})\n"
            f"plots.timeline(history, target_latency_s={self.target_latency_s:g})"
        )


@dataclass(frozen=True, repr=False)
class OnApplication(CodeRoundTrip):
    """Base of settings of runs on an application, under any policy.

    Without a `workload` it is the application's own. `plant` is one of `simulator.VARIANTS`, `changes` are fields of
    the plant that are changed after that.
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
        check_settings(self)

    def application(self, own: App | None = None) -> App:
        """Return the application as set, on this plant and under this load.

        Parameters
        ----------
        own : App, optional
            The application itself, where it is not one of `dspkit.apps`.
        """
        app: App = (application_of(self.app) if own is None else own).must_be_simulated()
        return app.under(self.workload, variant(app.plant, self.plant, **self.changes))


@dataclass(frozen=True, repr=False)
class Settings(OnApplication):
    """The settings of an `Explorer`, simulated or live; `code()` is the same run without widgets.

    Parameters
    ----------
    app : str
        Name of the application.
    policy : Policy
        The policy that decides.
    backend : str
        "simulated", "spark", or "given" for the backend that the view was made with.
    parallelism : mapping
        Instances of each operator at first.
    options : mapping
        More arguments of the backend, e.g. {"engine": "records"} or {"mode": "microbatch"}.
    scale : float
        How many times the load.
    workload : Workload, optional
        Another load than the application's own.
    plant : str
        One of `simulator.VARIANTS`; only the simulator has a plant.
    changes : mapping
        Fields of that plant that are changed.
    windows : int
        Length of the run in windows.
    window_s : float
        Length of a window in seconds.
    settle : int
        Windows after each change that are observed and not decided on.
    seed : int
        Seed of the policy and of the simulator.
    target_latency_s : float
        The latency to aim at, a line in the chart.

    Examples
    --------
    >>> from dspkit.policies import DS2
    >>> settings = Settings("star", DS2(), windows=20)
    >>> print(settings.code())
    from dspkit import apps, plots, run
    from dspkit.policies.ds2 import DS2
    <BLANKLINE>
    app = apps.star()
    history = run(DS2(), app, steps=20)
    plots.timeline(history, target_latency_s=0.18)
    """

    policy: Policy
    backend: str = field(default="simulated", kw_only=True)
    parallelism: Mapping[str, int] = field(default_factory=FrozenMap, kw_only=True)
    options: Mapping[str, Any] = field(default_factory=FrozenMap, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.backend, str) or self.backend not in (*SIDES, GIVEN):
            raise ArgumentError(
                f"{type(self).__name__}.backend = {self.backend!r:.80}",
                expected=f"{', '.join(map(repr, SIDES))} or {GIVEN!r}",
                fix="choose one",
            )
        if self.options:
            _check_options(self.backend, self.options)

    @property
    def scale_turns(self) -> bool:
        """True if another scale takes effect in an active run: the load of a given backend is its own."""
        return self.backend != GIVEN

    def application(self, own: App | None = None) -> App:
        """Return the application as set: simulated on this plant, or as it runs live, and under this load.

        Parameters
        ----------
        own : App, optional
            The application itself, where it is not one of `dspkit.apps`.

        Examples
        --------
        >>> from dspkit.policies import DS2
        >>> Settings("word_count", DS2(), backend="spark").application().load.rate(60)
        2400.0
        """
        if self.backend == "simulated":
            return super().application(own)
        app: App = application_of(self.app) if own is None else own
        return app if self.backend == GIVEN else app.as_live().under(self.workload)

    def experiment(self, app: App, load: Any = None, **more: Any) -> Experiment:
        """Return the run as an `Experiment`.

        Parameters
        ----------
        app : App
            The application as `application()` returns it.
        load : Workload or mapping, optional
            A load that has the scale in it already.
        **more
            Arguments of the backend beside the options, or in their place.

        Examples
        --------
        >>> from dspkit.policies import DS2
        >>> settings = Settings("star", DS2(), windows=3, parallelism={"bolt": 2})
        >>> len(settings.experiment(settings.application()).run())
        3
        """
        options = {"parallelism": {**app.deployment().parallelism, **self.parallelism}, **self.options}
        if load is None:
            options["scale"] = self.scale
        options |= more
        return Experiment(
            app,
            self.policy,
            self.backend,
            load=load,
            steps=self.windows,
            window_s=self.window_s,
            settle=self.settle,
            seed=self.seed,
            options=options,
        )

    def code(self) -> str:
        """Return the same run as code to copy."""
        names, made = application_code(self)
        policy, loop = call(self.policy), loop_arguments(self)
        if self.backend == "simulated":
            lines = f"history = run({', '.join([policy, 'app', loop, *self._arguments(10.0)])})\n"
        elif self.backend == GIVEN:
            names, made = set(), "# backend is the one that was given to ui.Explorer\n"
            lines = f"history = run({policy}, backend, {loop})\n"
        else:
            load = [] if self.workload is None else [load_code(self.workload)]
            lines = (
                f"with app.spark({', '.join([*load, *self._arguments(5.0)])}) as job:\n"
                f"    history = run({policy}, job, {loop})\n"
            )
        return (
            f"from dspkit import {', '.join(sorted({'plots', 'run', *names}))}\n{imports(self.policy)}\n{made}{lines}"
            f"plots.timeline(history, target_latency_s={self.target_latency_s:g})"
        )

    def _arguments(self, window_s: float) -> list[str]:
        """The arguments of the backend, where they are not its own defaults."""
        given = [f"scale={self.scale:g}"] if self.scale != 1 else []
        given += [f"parallelism={code_of(self.parallelism)}"] if self.parallelism and not self._as_it_starts() else []
        given += [f"window_s={self.window_s:g}"] if self.window_s != window_s else []
        return [*given, *(f"{name}={code_of(value)}" for name, value in self.options.items())]

    def _as_it_starts(self) -> bool:
        """Return whether a run without `parallelism` begins with the same."""
        known = self.app in apps.available()
        if self.backend == "simulated" and known:
            return bool(self.parallelism == application_of(self.app).deployment().parallelism)
        return known and not set(self.parallelism.values()) - {1}


def _check_options(backend: str, options: Mapping[str, Any]) -> None:
    """Refuse arguments that the backend does not have, before anything starts."""
    known: set[str] = set()
    if backend == "simulated":
        from ..simulator import Simulator

        known = _keywords(App.simulator) | _keywords(Simulator)
    elif backend == "spark":
        from ..spark import SparkJob

        known = _keywords(App.spark) | _keywords(SparkJob)
    known -= {*(f.name for f in fields(Settings)), "deployment"}
    if unknown := [name for name in options if name not in known]:
        raise ArgumentError(
            f"{', '.join(map(repr, unknown))} for the backend {backend!r}",
            expected=f"some of {', '.join(sorted(known))}" if known else "nothing beside a backend that is made",
            fix="check the names" if known else "pass it where the backend is made",
        )


def _keywords(made: Callable[..., Any]) -> set[str]:
    return {p.name for p in inspect.signature(made).parameters.values() if p.kind is p.KEYWORD_ONLY}


def application_code(settings: Any) -> tuple[set[str], str]:
    """Return the names to import from dspkit, and the lines that make `app` as the settings have it."""
    names, made = {"apps"}, f"app = apps.{settings.app}()\n"
    if settings.app not in apps.available():
        names, made = set(), "# app is the application that was given to ui.Explorer\n"
    if settings.workload is not None:
        names.add("workload")
    if getattr(settings, "backend", "simulated") != "simulated":
        return names, made  # its load is an argument, and it has no plant
    changed = [] if settings.workload is None else [load_code(settings.workload)]
    if settings.plant != OWN or settings.changes:
        names.add("simulator")
        more = "".join(f", {name}={code_of(value)}" for name, value in settings.changes.items())
        changed.append(f"plant=simulator.variant(app.plant, {settings.plant!r}{more})")
    return names, made + (f"app = app.under({', '.join(changed)})\n" if changed else "")


def load_code(load: Workload) -> str:
    """Return the call that makes a load, with `workload.` before each of its classes."""
    try:
        tree = ast.parse(call(load), mode="eval")
    except SyntaxError:  # a summary in <>
        return f"workload.{call(load)}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and hasattr(workload, node.func.id):
            node.func.id = f"workload.{node.func.id}"
    return ast.unparse(tree)


def loop_arguments(settings: Any) -> str:
    """Return the arguments of `run` beside policy and backend."""
    more = {"steps": settings.windows, "settle": settings.settle, "seed": settings.seed}
    return ", ".join(f"{name}={value}" for name, value in more.items() if value or name == "steps")


def imports(policy: Any) -> str:
    """Return a line of code for the policy's class, and one for each policy that it wraps."""
    inner = [getattr(policy, f.name) for f in fields(policy)] if is_dataclass(policy) else []
    things = [thing for value in inner for thing in (value if isinstance(value, tuple) else (value,))]
    lines = dict.fromkeys(line for thing in things if is_dataclass(thing) for line in imports(thing).splitlines(True))
    return f"from {type(policy).__module__} import {type(policy).__name__}\n{''.join(lines)}"


class Dial(Workload):
    """A load times `scale()` at the moment of the call; all other loads are functions of time alone."""

    def __init__(self, load: Workload, scale: Callable[[], float]):
        self._load, self._scale = load, scale

    def rates(self, t: Any) -> Any:
        return self._scale() * self._load.rates(t)

    def __repr__(self) -> str:
        return f"{self._load} * {self._scale():g}"


def dials(app: App, scale: Callable[[], float]) -> dict[str, Workload]:
    """Return the app's load times `scale()`, for each of its sources."""
    sources = app.topology.sources
    if isinstance(app.workload, Workload):
        share = app.workload if len(sources) == 1 else app.workload * (1 / len(sources))
        return dict.fromkeys(sources, Dial(share, scale))
    return {source: Dial(load, scale) for source, load in app.workload.items()}
