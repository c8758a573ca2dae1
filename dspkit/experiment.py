"""A complete description of one run: application, policy, backend, load and seed, which runs and prints itself as code.

Policies and applications may be given by name, as a class, or as an object; anything else is rejected with an error.

>>> from dspkit import Experiment
>>> experiment = Experiment("word_count", "ds2", steps=4)
>>> experiment.run()[-1].snapshot.deployment.parallelism
{'source': 1, 'flat_map': 1, 'count': 3, 'sink': 3}
>>> experiment
Experiment(app='word_count', policy=DS2(), steps=4)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from .core import ArgumentError, Backend, BackendError, FrozenMap, History, Policy, Step, call, record
from .core import run as run_loop
from .core.policy import PolicyError

if TYPE_CHECKING:
    from .workload import Workload


STEPS = 90  # default number of windows of an application's run
SIDES = ("simulated", "spark")
_METHODS = {"simulated": "simulator", "spark": "spark"}  # an application's method for each side


@dataclass(frozen=True, repr=False)
class Experiment:
    """One run: `run()` executes it to its end, `begin()` step by step, and `code()` is the Python that repeats it.

    Parameters
    ----------
    app : str or App
        An application, or the name of one.
    policy : str, type or Policy
        A policy, its class, or its name.
    backend : str or callable
        "simulated", "spark", or a function that makes a backend from the application.
    load : Workload or mapping, optional
        A load in the place of the application's own, or one for each source.
    steps : int
        Number of windows.
    window_s : float, optional
        Length of a window in seconds; by default the backend's own.
    settle : int
        Windows after each change that are observed without a decision.
    seed : int
        Seed of the policy and, if it draws random numbers, of the simulator.
    options : mapping
        Further options of the backend, e.g. {"parallelism": 3} or {"engine": "records"}.

    Examples
    --------
    >>> history = Experiment("star", "static", steps=3, options={"parallelism": 2}).run()
    >>> history[-1].snapshot.deployment.instances
    12
    """

    app: Any
    policy: Any
    backend: str | Callable[[Any], Backend] = "simulated"
    _: KW_ONLY
    load: Workload | Mapping[str, Workload] | None = None
    steps: int = STEPS
    window_s: float | None = None
    settle: int = 0
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", policy_of(self.policy))
        object.__setattr__(self, "options", FrozenMap(self.options))
        application_of(self.app)
        if self.backend not in SIDES and (not callable(self.backend) or isinstance(self.backend, type)):
            raise BackendError(
                f"backend {self.backend!r:.80}",
                expected=f"{' or '.join(map(repr, SIDES))}, or a function of the application",
                fix="as in lambda app: app.simulator(tick_s=1.0)",
            )

    def __repr__(self) -> str:
        return call(self)

    @property
    def application(self) -> Any:
        """The application itself, also if it was given by name."""
        return application_of(self.app)

    def open(self) -> Backend:
        """Make the backend; the caller closes it.

        Examples
        --------
        >>> Experiment("star", "static").open().topology.sources
        ('left', 'right')
        """
        app = self.application
        if not isinstance(self.backend, str):
            return _checked(self.backend(app))
        make = getattr(app, _METHODS[self.backend], None)
        if make is None:
            there = [side for side, method in _METHODS.items() if hasattr(app, method)]
            raise BackendError(
                f"backend {self.backend!r} of an application without one",
                expected=f"one that it has: {' or '.join(map(repr, there))}",
                fix="choose this one, or an application that has both sides",
            )
        options = dict(self.options)
        if self.window_s is not None:
            options["window_s"] = self.window_s
        if self.backend == "simulated":
            options = {"seed": self.seed, **options}
        made: Backend = make(*(() if self.load is None else (self.load,)), **options)
        return made

    def begin(self) -> tuple[History, Iterator[Step]]:
        """Return an empty history, and an iterator of the steps that fill it; the backend is closed after the last.

        Examples
        --------
        >>> history, steps = Experiment("star", "static", steps=9).begin()
        >>> next(steps).index, len(history)
        (0, 1)
        """
        backend = self.open()
        history = History(backend.topology)
        try:
            loop = record(history, self.policy, backend, steps=self.steps, settle=self.settle, seed=self.seed)
        except BaseException:
            backend.close()
            raise
        return history, _closing(backend, loop)

    def run(self) -> History:
        """Run all windows and return them.

        Examples
        --------
        >>> len(Experiment("star", "static", steps=3).run())
        3
        """
        history, steps = self.begin()
        for _ in steps:
            pass
        return history

    def code(self) -> str:
        """Return the Python that repeats this run.

        A registered application is written as its name and its changed fields; one of your own is written out, except
        for functions.

        Examples
        --------
        >>> from dspkit import apps, workload
        >>> print(Experiment(apps.star().under(workload.Constant(9)), "static").code())
        from dspkit import Experiment, apps
        from dspkit.policies.static import Static
        from dspkit.workload.shapes import Constant
        <BLANKLINE>
        history = Experiment(app=apps.star().under(workload=Constant(rate_per_s=9.0)), policy=Static()).run()
        """
        made, app, parts = call(self), self.app, self.app
        if (changed := changed_parts(app)) is not None:
            parts = tuple(changed.values())
            under = ", ".join(f"{name}={call(value)}" for name, value in changed.items())
            short = f"apps.{app.name}(){f'.under({under})' * bool(under)}"
            made = made.replace(call(app), short, 1)
        known: set[Any] = {type(value) for value in _within((self.policy, parts, self.load, self.options))}
        if not isinstance(self.backend, str):
            made = made.replace(repr(self.backend), self.backend.__qualname__)
            known.add(self.backend)
        lines = sorted(f"from {thing.__module__} import {thing.__qualname__}" for thing in known)
        head = f"from dspkit import Experiment{', apps' * (changed is not None)}"
        return "\n".join([head, *lines, "", f"history = {made}.run()"])


def run(
    policy: str | type | Policy,
    on: Any,
    *,
    steps: int | None = None,
    settle: int = 0,
    seed: int = 0,
    act: bool = True,
    refused: str = "raise",
    history: History | None = None,
    load: Workload | Mapping[str, Workload] | None = None,
    **options: Any,
) -> History:
    """Run a policy on a backend, or on an application's simulator, and return the recorded steps.

    Parameters
    ----------
    policy : str, type or Policy
        A policy, its class, or its name.
    on : Backend, App or str
        A backend, which stays open; or an application or its name, which is simulated.
    steps : int, optional
        Number of windows. By default 90 for an application; for a backend all that it has, which may be endless.
    settle : int
        Windows after each change that are observed without a decision.
    seed : int
        Seed of the policy and of an application's simulator.
    act : bool
        Whether to deploy the decisions.
    refused : {"raise", "skip"}
        Whether a decision that cannot be deployed ends the run or is skipped; see `control_loop`.
    history : History, optional
        An empty history, which keeps the recorded steps if the run is interrupted.
    load : Workload or mapping, optional
        A load in the place of the application's own.
    **options
        Further options of the application's simulator, e.g. `window_s=5`.

    Examples
    --------
    >>> run("ds2", "word_count", steps=4)[-1].snapshot.deployment.parallelism
    {'source': 1, 'flat_map': 1, 'count': 3, 'sink': 3}
    """
    policy = policy_of(policy)
    if isinstance(on, Backend) and not isinstance(on, type):
        if load is not None:
            options["load"] = load
        if options:
            raise ArgumentError(
                f"{', '.join(options)} beside a backend",
                expected="such options for an application only",
                fix="pass them where the backend is made",
            )
        return run_loop(policy, on, steps=steps, settle=settle, seed=seed, act=act, refused=refused, history=history)
    app = application_of(on, "a backend, an application, or the name of an application")
    experiment = Experiment(app, policy, load=load, settle=settle, seed=seed, options=options)
    with experiment.open() as backend:
        count = STEPS if steps is None else steps
        return run_loop(
            policy, backend, steps=count, settle=settle, seed=seed, act=act, refused=refused, history=history
        )


def policy_of(thing: Any) -> Policy:
    """Return the policy that a name, a class or a policy stands for.

    Examples
    --------
    >>> policy_of("ds2").name
    'ds2'
    """
    from . import policies

    if isinstance(thing, str):
        return policies.get(thing)()
    if isinstance(thing, type) and all(callable(getattr(thing, method, None)) for method in ("init", "step")):
        given = inspect.signature(thing).parameters.values()
        bare = [p.name for p in given if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if bare:
            raise PolicyError(
                f"the class {thing.__name__}, which cannot be made without {', '.join(bare)}",
                expected="an instance of it",
                fix=f"as in {thing.__name__}({', '.join(f'{name}=...' for name in bare)})",
            )
        thing = thing()
    if isinstance(thing, Policy) and not isinstance(thing, type):
        return thing
    first = isinstance(thing, Backend) or hasattr(thing, "simulator")
    raise PolicyError(
        label_of(thing),
        expected="a policy, its class or its name",
        fix="the policy comes first, then what it runs on" if first else 'as in "ds2" or DS2(); see policies.table()',
    )


def application_of(thing: Any, expected: str = "an application or its name") -> Any:
    """Return the application that a name or an application stands for.

    Examples
    --------
    >>> application_of("word_count").topology.order
    ('source', 'flat_map', 'count', 'sink')
    """
    if isinstance(thing, str):
        from . import apps

        return apps.get(thing)()
    if not isinstance(thing, type) and any(hasattr(thing, method) for method in _METHODS.values()):
        return thing
    raise ArgumentError(label_of(thing), expected=expected, fix=_instead(thing))


def _checked(thing: Any) -> Backend:
    """Return the backend, or raise an error that describes the object."""
    if isinstance(thing, Backend) and not isinstance(thing, type):
        return thing
    raise BackendError(label_of(thing), expected="a backend", fix=_instead(thing))


def changed_parts(app: Any) -> dict[str, Any] | None:
    """Return the changed load and plant of a registered application; None for any other one."""
    from . import apps

    make = apps.available().get(getattr(app, "name", ""))
    if isinstance(app, str) or make is None or type(own := make()) is not type(app):
        return None
    changed = {f.name: getattr(app, f.name) for f in fields(app) if getattr(app, f.name) != getattr(own, f.name)}
    return changed if all(name in ("workload", "plant") and is_dataclass(v) for name, v in changed.items()) else None


def label_of(thing: Any) -> str:
    """Return a description of an argument for messages."""
    if isinstance(thing, type):
        return f"the class {thing.__name__}"
    if inspect.isroutine(thing):
        return f"the function {thing.__name__}"
    return f"{type(thing).__name__} {thing!r:.80}"


def _instead(thing: Any) -> str:
    if inspect.isroutine(thing) or isinstance(thing, type):
        return f"call it, as in {thing.__name__}(...)"
    if isinstance(thing, Policy):
        return "the policy comes first, then what it runs on"
    return 'as in "word_count", app, or app.simulator()'


def _closing(backend: Backend, loop: Iterator[Step]) -> Iterator[Step]:
    with backend:
        yield from loop


def _within(value: Any) -> Iterator[Any]:
    """Yield every dataclass instance that the code of a value names."""
    if is_dataclass(value) and not isinstance(value, type):
        yield value
        for f in fields(value):
            yield from _within(getattr(value, f.name))
    elif isinstance(value, Mapping):
        yield from _within(tuple(value.values()))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _within(item)
