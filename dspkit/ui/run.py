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
from .background import REDRAW_S, Background
from .settings import LiveSettings, Settings


class Run(Background):
    """One run of a policy on the backend that `begin(run)` makes; `show(run)` comes at most every REDRAW_S seconds."""

    def __init__(
        self,
        settings: LiveSettings | Settings,
        begin: Callable[[Run], Backend],
        show: Callable[[Run], None],
        pace: Callable[[], float],
    ):
        """`pace()` is in windows a second, asked after each window; 0 is as fast as it goes."""
        super().__init__(show)
        self.settings = settings
        self.history: History | None = None
        self._begin, self._pace = begin, pace
        self._lock, self._go = threading.Lock(), threading.Event()
        self._go.set()
        self._started_s = self._held_s = 0.0
        self._turned_to: LiveSettings | Settings | None = None
        self._moved: dict[str, int] = {}
        self._policies, self._told = [settings.policy], dict[str, Any]()

    def stop(self) -> None:
        super().stop()
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

    def work(self) -> None:
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
