"""A generator that runs beside its caller: it is given its input bit by bit, and gives back what it made of each.

A generator that reads from another one is only ever asked for its next output, and keeps control until it has one.
Here the caller must have it back when the generator asks for more input. They take turns, in two threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")
_END = object()


class Beside(Generic[In, Out]):
    """`start()`, then `give(x)` for each input, then `end()`: each yields what came out, and returns at the next ask.

    >>> def pairs(numbers):
    ...     for n in numbers:
    ...         if n % 2:
    ...             yield n
    ...             yield n
    >>> beside = Beside(pairs)
    >>> list(beside.start()), list(beside.give(1)), list(beside.give(2)), list(beside.end())
    ([], [1, 1], [], [])
    """

    def __init__(self, make: Callable[[Iterator[In]], Iterator[Out]]):
        self._make = make
        self._in: SimpleQueue[Any] = SimpleQueue()
        self._out: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._done = False

    def start(self) -> Iterator[Out]:
        self._thread.start()
        yield from self._until_asked()

    def give(self, value: In) -> Iterator[Out]:
        if not self._done:
            self._in.put(value)
            yield from self._until_asked()

    def end(self) -> Iterator[Out]:
        if not self._done:
            self._in.put(_END)
            yield from self._until_asked()
        self._thread.join()

    def _until_asked(self) -> Iterator[Out]:
        while True:
            kind, value = self._out.get()
            if kind == "made":
                yield value
                self._in.put(None)  # it was taken: go on
            elif kind == "asks":
                return
            else:
                self._done = True
                if kind == "failed":
                    raise value
                return

    def _work(self) -> None:
        try:
            for value in self._make(self._inputs()):
                self._out.put(("made", value))
                self._in.get()
        except BaseException as error:
            self._out.put(("failed", error))
        else:
            self._out.put(("done", None))

    def _inputs(self) -> Iterator[In]:
        while True:
            self._out.put(("asks", None))
            value = self._in.get()
            if value is _END:
                return
            yield value
