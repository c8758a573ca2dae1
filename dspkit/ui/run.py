"""Background threads of views: a run that can be paused, stopped and changed on the way.

One thread of a kind is active at a time in a kernel. There are no widgets here, so that tests need none.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..core import THEN, Backend, BackendError, Decision, History, Step, call, changes, control_loop, describe
from ..core.policy import PolicyKnobs
from .settings import LiveSettings, Settings

REDRAW_S = 0.25  # a browser that must draw more often falls behind


class Background:
    """A background thread; a subclass defines `work()`, which checks `stopping` between two pieces of its work.

    `show(self)` is called from the thread: now and then by `work`, and once when all is over. Starting one of a kind
    stops the one before, and waits for it in the new one's thread.
    """

    _latest: ClassVar[Any] = None
    _starting: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, show: Callable[[Any], None]):
        self.error: Exception | None = None
        self.over = False
        self._show = show
        self._stop = threading.Event()
        self._former: Background | None = None
        self._thread = threading.Thread(target=self._all, daemon=True, name=f"dspkit-{type(self).__name__.lower()}")

    def work(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} must give work()")

    def start(self) -> None:
        kind = type(self)
        with self._starting:
            self._former, kind._latest = kind._latest, self
            if self._former is not None:
                self._former.stop()
            self._thread.start()

    @classmethod
    def stop_latest(cls) -> None:
        """Stop the active one of this kind, if there is one."""
        if cls._latest is not None:
            cls._latest.stop()

    def stop(self) -> None:
        """Ask it to end after the present piece, and return at once."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is over, and return whether it is."""
        self._thread.join(timeout_s)
        return not self.running

    def is_this_thread(self) -> bool:
        return self._thread is threading.current_thread()

    def _all(self) -> None:
        if self._former is not None:
            self._former.wait()
            self._former = None
        try:
            if not self.stopping:
                self.work()
        except Exception as error:
            self.error = error
        self.over = True
        self._show(self)


class BackgroundTask(Background):
    """A background thread whose work is `pieces()`: a subclass defines this generator, which yields in between."""

    def pieces(self) -> Iterator[None]:
        raise NotImplementedError(f"{type(self).__name__} must give pieces()")

    def work(self) -> None:
        shown = 0.0
        for _ in self.pieces():
            if time.monotonic() - shown > REDRAW_S:
                self._show(self)
                shown = time.monotonic()
            if self.stopping:
                break


@dataclass(frozen=True)
class Hand:
    """A person's changes before a window: settings, numbers of instances, and the number of workers."""

    settings: LiveSettings | Settings | None
    moved: Mapping[str, int]
    workers: int | None


class Run(Background):
    """One run of a policy on the backend that `begin(run)` makes; `show(run)` is called now and then.

    A branch first repeats the first windows of another run, with what its person changed and its policy answered. Its
    backend must be deterministic: a window that comes out otherwise ends it.
    """

    def __init__(
        self,
        settings: LiveSettings | Settings,
        begin: Callable[[Run], AbstractContextManager[Backend]],
        show: Callable[[Run], None],
        pace: Callable[[], float],
        told: Callable[[], None] = lambda: None,
        repeats: tuple[Run, int] | None = None,
    ):
        """`pace()` returns windows per second and is called after each window; 0 is as fast as possible.

        `told()` is called after each window, and `repeats` is a run and how many of its windows to repeat.
        """
        super().__init__(show)
        self.first = self.settings = settings
        self.hands: dict[int, Hand] = {}  # by the windows done before
        self._told_of_window = told
        self._repeated, self._until = ([], 0) if repeats is None else _recorded(*repeats)
        self._repeated_hands = {} if repeats is None else repeats[0].hands
        self._answers = deque((s.state, s.decision) for s in self._repeated if s.decision is not None)
        self._once = False
        self.history: History | None = None
        self.stage = ""  # of a start that takes long, in a few words
        self._begin, self._pace = begin, pace
        self._lock, self._go = threading.Lock(), threading.Event()
        self._go.set()
        self._started_s = self._held_s = 0.0
        self._turned_to: LiveSettings | Settings | None = None
        self._moved: dict[str, int] = {}
        self._workers: int | None = None
        self._policies, self._told = [settings.policy], dict[str, Any]()

    def stop(self) -> None:
        super().stop()
        self._go.set()

    def pause(self) -> None:
        """Pause the run after the present window, until `resume` or `stop`; a real job keeps running."""
        if not self.stopping:
            self._go.clear()

    def resume(self) -> None:
        self._once = False
        self._go.set()

    def step(self) -> None:
        """Run one window, and pause after it."""
        self._once = True
        self._go.set()

    @property
    def repeating(self) -> bool:
        """True while it repeats the windows of another run."""
        return len(self.history or ()) < self._until

    @property
    def _length(self) -> int:
        """Windows of the run, with what was set since the last one."""
        with self._lock:
            return (self._turned_to or self.settings).windows

    @property
    def paused(self) -> bool:
        return not self._go.is_set()

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until the end at the pace so far, or None before the first window."""
        done = len(self.history) if self.history else 0
        if not done or self.over or not self._started_s:
            return None
        return (time.monotonic() - self._started_s - self._held_s) / done * (self.settings.windows - done)

    def turn(self, settings: LiveSettings | Settings) -> None:
        """Follow these settings from the next window on; their parallelism is for the next run."""
        with self._lock:
            self._turned_to = settings

    def move(self, operator: str, parallelism: int) -> None:
        """Run the operator with that many instances from the next window on, until a policy decides otherwise."""
        with self._lock:
            self._moved[operator] = parallelism

    def move_workers(self, count: int) -> None:
        """Run on that many workers from the next window on, until a policy decides otherwise."""
        with self._lock:
            self._workers = count

    def report(self, stage: str) -> None:
        """Show what the start of the backend is about; called by the backend."""
        if stage != self.stage:
            self.stage = stage
            self._show(self)

    @property
    def moved(self) -> dict[str, int]:
        """The moves by hand that are not deployed yet."""
        with self._lock:
            return dict(self._moved)

    @property
    def moved_workers(self) -> int | None:
        """The number of workers that was set by hand and is not deployed yet."""
        with self._lock:
            return self._workers

    # In the run's own thread

    def work(self) -> None:
        with self._begin(self) as backend:
            history = self.history = History(backend.topology)
            self._tell(backend)
            steps, shown = self._steps(backend), 0.0
            self._started_s = time.monotonic()
            while (self.repeating or len(history) < self._length) and not self.stopping:
                repeating = self.repeating
                if not repeating and self.paused and self._hold():
                    break
                steps = self._obey(backend, steps)
                if (step := next(steps, None)) is None:
                    break
                if repeating:
                    _must_equal(step, self._repeated[len(history)])
                history.append(step)
                if self.repeating:
                    continue
                if self._once:
                    self._once = False
                    self._go.clear()
                self._told_of_window()
                if time.monotonic() - shown >= REDRAW_S:
                    self._show(self)
                    shown = time.monotonic()
                if (pace := self._pace()) and len(history) < self.settings.windows and not self.paused:
                    self._stop.wait(1 / pace)

    def _hold(self) -> bool:
        """Wait until the run is resumed, and return whether it has to stop instead."""
        self._show(self)
        held = time.monotonic()
        self._go.wait()
        self._held_s += time.monotonic() - held
        return self.stopping

    def _obey(self, backend: Backend, steps: Iterator[Step]) -> Iterator[Step]:
        """Apply the changes by hand since the last window, and note them in the history."""
        hand = self._taken()
        if hand is None:
            return steps
        new, moved, workers = hand.settings or self.settings, hand.moved, hand.workers
        old, self.settings = self.settings, new
        done = []
        if moved or workers is not None:
            done += [f"{changed}, by hand" for changed in _move(backend, moved, workers)]
        if isinstance(new, Settings) and isinstance(old, Settings) and new.scale_turns and new.scale != old.scale:
            done.append(f"load × {new.scale:g}")
        if new.settle != old.settle:
            done.append(f"settle {new.settle} windows")
        if new.policy != old.policy:
            done.append(f"policy {call(new.policy)}")
            self._policies.append(new.policy)
        if not done or self.history is None:
            return steps
        t = self.history[-1].snapshot.t if len(self.history) else 0.0
        self.history.notes += [(t, what) for what in done]
        self._tell(backend)
        if (new.policy, new.settle) == (old.policy, old.settle):
            return steps
        return self._steps(backend, keep_state=type(new.policy) is type(old.policy))

    def _taken(self) -> Hand | None:
        """Return what a person changed since the last window, or did in the run that is repeated."""
        done = len(self.history or ())
        if self.repeating:
            hand = self._repeated_hands.get(done)
        else:
            with self._lock:
                hand = Hand(self._turned_to, self._moved, self._workers)
                self._turned_to, self._moved, self._workers = None, {}, None
        if hand is None or hand == Hand(None, {}, None):
            return None
        self.hands[done] = hand
        return hand

    def _steps(self, backend: Backend, *, keep_state: bool = False) -> Iterator[Step]:
        """Return the loop from here on; a policy of which only a knob was turned keeps its state."""
        last = self.history[-1] if self.history else None
        if last is not None and not keep_state:
            last = replace(last, state=None)
        settle, seed, policy = self.settings.settle, self.settings.seed, self.settings.policy
        if self._answers:
            policy = _Repeats(
                policy.suited(backend.knobs) if isinstance(policy, PolicyKnobs) else policy, self._answers
            )
        return control_loop(policy, backend, settle=settle, seed=seed, after=last)

    def _tell(self, backend: Backend) -> None:
        """Write into the history, for reports, how the run began and which policies it had since."""
        assert self.history is not None
        if not self._told:
            settings = self.settings
            self._told = describe(settings.policy, backend, settle=settings.settle, seed=settings.seed)
            self._told |= {"code": settings.code(), "settings": repr(settings)}
            self.history.set_metadata(self._told)
            return
        references = dict.fromkeys(key for p in self._policies for key in _keys(getattr(p, "reference", ())))
        self._told["settings"] = repr(self.settings)
        told = {key: value for key, value in self._told.items() if key != "code"}  # no code makes this run again
        policies = THEN.join(call(p) for p in self._policies)
        self.history.set_metadata({**told, "policy": policies, "reference": tuple(references)})


class _Repeats:
    """A policy that answers as it did in a recorded run, and by itself after that."""

    def __init__(self, policy: Any, answers: deque[tuple[Any, Decision]]):
        self._policy, self._answers = policy, answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def step(self, state: Any, snapshot: Any) -> Any:
        return self._answers.popleft() if self._answers else self._policy.step(state, snapshot)


def _recorded(run: Run, windows: int) -> tuple[list[Step], int]:
    steps = run.history.steps[:windows] if run.history else []
    return steps, len(steps)


def _must_equal(step: Step, recorded: Step) -> None:
    if (step.snapshot, step.rescaled) != (recorded.snapshot, recorded.rescaled):
        raise BackendError(
            f"another window {recorded.index} (t = {recorded.snapshot.t:g} s) than the run had that is repeated",
            expected="a backend that gives the same again",
            fix="branch runs of the simulator, whose loads and services are functions of time and seed",
        )


def _move(backend: Backend, moved: Mapping[str, int], workers: int | None) -> list[str]:
    before = backend.deployment
    after = before.scaled(moved)
    if workers is not None and "workers" in backend.knobs:
        after = replace(after, workers=workers)
    if after == before:
        return []
    backend.deploy(after)
    return [changes(before, after)]


def _keys(reference: str | tuple[str, ...]) -> tuple[str, ...]:
    return (reference,) if isinstance(reference, str) else tuple(reference)
