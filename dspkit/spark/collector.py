"""The driver's end of the meters: listens to all tasks of a job and adds up what each operator did."""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_KEPT = 4  # tokens of which tasks may still speak


@dataclass
class Totals:
    """Sums since the job began, by operator; and what is known of the epoch that runs."""

    operators: dict[int, Counter[str]] = field(default_factory=dict)
    epoch: dict[int, Counter[str]] = field(default_factory=dict)  # of the newest token only
    read_to: dict[int, dict[int, int]] = field(default_factory=dict)
    tasks: Counter[int] = field(default_factory=Counter)  # at work now
    gaps: list[tuple[float, float]] = field(default_factory=list)  # stretches without any task: from, to
    token: str = ""


class Collector:
    """Receives readings by UDP. Each job has a name that nobody can guess; what does not carry it is thrown away."""

    def __init__(self, host: str = "127.0.0.1"):
        self.name = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._last: dict[tuple[str, int, str], dict[str, Any]] = {}
        self._tokens: list[str] = []
        self._totals = Totals()
        self._failed: tuple[str, str] | None = None  # the operator whose function raised last, and what
        self._ends = 0.0  # when the last task of the token before was through
        self._begun = True  # whether a task of the newest token has spoken
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._socket.bind((host, 0))
        self._socket.settimeout(0.5)
        self.address: tuple[str, int] = self._socket.getsockname()
        self._open = True
        self._thread = threading.Thread(target=self._listen, daemon=True, name="dspkit-meters")
        self._thread.start()

    def totals(self) -> Totals:
        """A copy of the present sums."""
        with self._lock:
            now, newest = self._totals, self._tokens[-1] if self._tokens else ""
            epoch: dict[int, Counter[str]] = {}
            tasks: Counter[int] = Counter()
            for (token, operator, _), told in self._last.items():
                if token == newest:
                    epoch.setdefault(operator, Counter()).update(told["counts"])
                    tasks[operator] += not told["final"]
            operators = {i: Counter(counts) for i, counts in now.operators.items()}
            read_to = {i: dict(to) for i, to in now.read_to.items()}
            return Totals(operators, epoch, read_to, tasks, list(now.gaps), newest)

    def blame(self) -> tuple[str, str] | None:
        """The operator whose function raised since this was asked last, and its traceback."""
        found, self._failed = self._failed, None
        return found

    def close(self) -> None:
        self._open = False
        self._thread.join(5)
        self._socket.close()

    def _listen(self) -> None:
        while self._open:
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                return
            try:
                told = json.loads(data)
                if told["job"] != self.name:
                    continue
                if "failed" in told:
                    self._failed = tuple(told["failed"])
                else:
                    self._take(told)
            except (ValueError, KeyError, TypeError):
                continue  # not one of ours

    def _take(self, told: dict[str, Any]) -> None:
        token, operator = told["token"], told["operator"]
        key, counts = (token, operator, told["task"]), told["counts"]
        with self._lock:
            if token not in self._tokens:
                self._new(token, told["began"])
            before = self._last.get(key, {"counts": {}})["counts"]
            total = self._totals.operators.setdefault(operator, Counter())
            for name, value in counts.items():
                total[name] += value - before.get(name, 0)
            self._last[key] = told
            if told["read_to"]:
                read = self._totals.read_to.setdefault(operator, {})
                read.update({int(p): to for p, to in told["read_to"].items()})
            if token == self._tokens[-1]:
                self._ends = max(self._ends, told["now"])

    def _new(self, token: str, began: float) -> None:
        """The first word of a new epoch; between the last of the old one and this nothing ran."""
        if self._tokens and began > self._ends:
            self._totals.gaps = [*self._totals.gaps[-999:], (self._ends, began)]
        self._tokens.append(token)
        for old in self._tokens[:-_KEPT]:
            for key in [k for k in self._last if k[0] == old]:
                del self._last[key]
        del self._tokens[:-_KEPT]
