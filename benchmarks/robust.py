"""Robustness on a shared machine: what other users of it cannot do to a job."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import Claim

DATAGRAMS, INPUTS = 1_000_000, 100_000
_UNDER_WAY = 500  # datagrams that are sent and not received yet: more would be lost, and prove nothing


def hostile_datagrams() -> Claim:
    """The share of 1,000,000 hostile datagrams to a job's meters after which its own readings still count exactly."""
    from dspkit.spark.metering import Collector, Meter

    collector, received = Collector(), 0
    receive = collector.receive

    def count(datagram: bytes) -> None:
        nonlocal received
        receive(datagram)
        received += 1

    collector.receive = count  # type: ignore[method-assign]
    meter = Meter(collector.address, {"operator": 0, "token": "0-a", "epoch": 0, "k": [1], "task": "0.0"})
    chance, sent, good = random.Random(1), 0, 0
    began = time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attacker:
        target = (collector.address.host, collector.address.port)
        kinds = _kinds(chance, meter, collector)
        while sent < DATAGRAMS:
            if sent - received > _UNDER_WAY:
                time.sleep(0.0005)
                if collector.thread.failure is not None or time.monotonic() - began > 1800:
                    break
                continue
            attacker.sendto(kinds[chance.randrange(len(kinds))], target)
            sent += 1
            if sent % 10_000 == 0:
                good = meter.done = sent
    end = time.monotonic() + 30
    meter.close()
    while _done(collector) != good and time.monotonic() < end and collector.thread.failure is None:
        time.sleep(0.05)
    exact = collector.thread.failure is None and _done(collector) == good
    hostile = min(received, sent)
    collector.close()
    detail = {"sent": sent, "received": hostile, "seconds": round(time.monotonic() - began, 1)}
    return Claim(hostile / DATAGRAMS if exact else 0.0, "share", 0.999, detail=detail)


def hostile_inputs() -> Claim:
    """Foreign errors, crashes and endless loops among 100,000 mutated inputs of all loaders."""
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-W", "ignore", str(root / "tests" / "loaders" / "test_hostile.py"), str(INPUTS)]
    environment = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}"}
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    seconds = round(time.monotonic() - began, 1)
    if done.returncode:  # the process itself was ended, so that the rest is not known
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-500:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    detail = {"given": found["given"], "failed": found["failed"][:5], "seconds": seconds}
    return Claim(len(found["failed"]), "inputs", 0, better="lower", detail=detail)


def _done(collector: Any) -> float:
    counts = collector.totals().operators.get(0)
    return float(counts["done"]) if counts else 0.0


def _kinds(chance: random.Random, meter: Any, collector: Any) -> list[bytes]:
    """Return datagrams of many kinds: noise of all lengths, deep and wrong JSON, and readings that are almost right."""
    body = json.dumps(meter.reading(final=True) | {"number": 1 << 40}).encode()
    good = collector.address.sign(body)
    made = [b"", b"{}", b"null", b"[" * 60_000, b'{"a":' * 12_000, b"\xff" * 65_507, body, bytes(32) + body]
    made += [good[:cut] for cut in (0, 1, 31, 32, 33, len(good) - 1)]
    for _ in range(500):
        changed = bytearray(good)
        changed[chance.randrange(len(good))] ^= 1 << chance.randrange(8)
        made.append(bytes(changed))
    made += [os.urandom(chance.choice((1, 31, 32, 33, 100, 500))) for _ in range(500)]
    made += [os.urandom(chance.randrange(65_507)) for _ in range(5)]
    return made
