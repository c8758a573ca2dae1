"""A run in the background of a notebook, with hands on it: no widget here, so that it can be tested without any."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..core import Backend, Step
from ..history import THEN, History, changes
from ..knobs import call
from ..loop import describe, mape
from .settings import LiveSettings, Settings

REDRAW_S = 0.25  # a browser that must draw more often falls behind


class Run:
    """One run of a policy on the backend that `begin(run)` makes.

    `show(run)` is called from the run's thread, at most every REDRAW_S seconds, and once when it is over. Only one Run
    of a kernel goes at a time: starting one tells the one before to stop, and waits for it in its own thread.
    """

    _latest: Run | None = None
    _starting = threading.Lock()

    def __init__(
        self,
        settings: LiveSettings | Settings,
        begin: Callable[[Run], Backend],
        show: Callable[[Run], None],
        pace: Callable[[], float],
    ):
        """`pace()` is in windows a second, asked after each window; 0 is as fast as it goes."""
        self.settings = settings
        self.history: History | None = None
        self.error: Exception | None = None
        self.over = False
        self._begin, self._show, self._pace = begin, show, pace
        self._lock, self._stop, self._go = threading.Lock(), threading.Event(), threading.Event()
        self._go.set()
        self._started_s = self._held_s = 0.0
        self._turned_to: LiveSettings | Settings | None = None
        self._moved: dict[str, int] = {}
        self._policies, self._told = [settings.policy], dict[str, Any]()
        self._thread = threading.Thread(target=self._work, daemon=True, name="dspkit-run")

    def start(self) -> None:
        with Run._starting:
            self._former, Run._latest = Run._latest, self
            if self._former is not None:
                self._former.stop()
            self._thread.start()

    @classmethod
    def stop_latest(cls) -> None:
        """Tell the run of this kernel to stop, if one goes."""
        if cls._latest is not None:
            cls._latest.stop()

    def stop(self) -> None:
        """Ask the run to end after the window it is in; returns at once."""
        self._stop.set()
        self._go.set()

    def pause(self) -> None:
        """Hold the run after the window it is in, until `resume` or `stop`; a real job goes on by itself."""
        if not self.stopping:
            self._go.clear()

    def resume(self) -> None:
        self._go.set()

    @property
    def paused(self) -> bool:
        return not self._go.is_set()

    @property
    def left_s(self) -> float | None:
        """Seconds until the end at the pace so far, or None if nothing tells yet."""
        done = len(self.history) if self.history else 0
        if not done or self.over or not self._started_s:
            return None
        return (time.monotonic() - self._started_s - self._held_s) / done * (self.settings.windows - done)

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the run to be over; whether it is."""
        self._thread.join(timeout_s)
        return not self.running

    def is_this_thread(self) -> bool:
        return self._thread is threading.current_thread()

    def turn(self, settings: LiveSettings | Settings) -> None:
        """From the next window on the run follows these settings; their parallelism is for the next run."""
        with self._lock:
            self._turned_to = settings

    def move(self, operator: str, parallelism: int) -> None:
        """From the next window on the operator runs with that many instances, until a policy decides otherwise."""
        with self._lock:
            self._moved[operator] = parallelism

    @property
    def moved(self) -> dict[str, int]:
        """Moves that the run has not come to yet."""
        with self._lock:
            return dict(self._moved)

    # In the run's own thread

    def _work(self) -> None:
        if self._former is not None:
            self._former.wait()
            self._former = None
        try:
            if not self.stopping:
                self._loop()
        except Exception as error:
            self.error = error
        self.over = True
        self._show(self)

    def _loop(self) -> None:
        with self._begin(self) as backend:
            history = self.history = History(backend.topology)
            self._tell(backend)
            steps, shown = self._steps(backend), 0.0
            self._started_s = time.monotonic()
            while len(history) < self.settings.windows and not self.stopping:
                if self.paused and self._hold():
                    break
                steps = self._obey(backend, steps)
                if (step := next(steps, None)) is None:
                    break
                history.append(step)
                if time.monotonic() - shown >= REDRAW_S:
                    self._show(self)
                    shown = time.monotonic()
                if (pace := self._pace()) and len(history) < self.settings.windows:
                    self._stop.wait(1 / pace)

    def _hold(self) -> bool:
        """Wait until the run goes on; whether it is to stop instead."""
        self._show(self)
        held = time.monotonic()
        self._go.wait()
        self._held_s += time.monotonic() - held
        return self.stopping

    def _obey(self, backend: Backend, steps: Iterator[Step]) -> Iterator[Step]:
        """Do what hands asked for since the last window, and note it in the history."""
        with self._lock:
            new, moved = self._turned_to or self.settings, self._moved
            self._turned_to, self._moved = None, {}
        old, self.settings = self.settings, new
        done = []
        if moved:
            done += [f"{changed}, by hand" for changed in _move(backend, moved)]
        if (scale := getattr(new, "scale", 1.0)) != getattr(old, "scale", 1.0):  # where the load is ours to turn
            done.append(f"load × {scale:g}")
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

    def _steps(self, backend: Backend, *, keep_state: bool = False) -> Iterator[Step]:
        """The loop from here on; a policy of which only a knob was turned goes on with what it knows."""
        last = self.history[-1] if self.history else None
        if last is not None and not keep_state:
            last = replace(last, state=None)
        settle, seed = self.settings.settle, self.settings.seed
        return mape(self.settings.policy, backend, settle=settle, seed=seed, after=last)

    def _tell(self, backend: Backend) -> None:
        """What a report has to say of this run: how it began, and which policies it had since."""
        assert self.history is not None
        if not self._told:
            settings = self.settings
            self._told = describe(settings.policy, backend, settle=settings.settle, seed=settings.seed)
            self._told |= {"code": settings.code(), "settings": repr(settings)}
            self.history.tell(self._told)
            return
        references = dict.fromkeys(key for p in self._policies for key in _keys(getattr(p, "reference", ())))
        self._told["settings"] = repr(self.settings)
        told = {key: value for key, value in self._told.items() if key != "code"}  # no code makes this run again
        policies = THEN.join(call(p) for p in self._policies)
        self.history.tell({**told, "policy": policies, "reference": tuple(references)})


def _move(backend: Backend, moved: Mapping[str, int]) -> list[str]:
    before = backend.deployment
    after = before.scaled(moved)
    if after == before:
        return []
    backend.deploy(after)
    return [changes(before, after)]


def _keys(reference: str | tuple[str, ...]) -> tuple[str, ...]:
    return (reference,) if isinstance(reference, str) else tuple(reference)
