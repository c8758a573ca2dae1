"""Robustness on a shared machine: hostile users of it, power cuts, and other programs that take the cores."""

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

ROOT = Path(__file__).resolve().parents[1]
DATAGRAMS, INPUTS, CUTS = 1_000_000, 100_000, 200
QUICK: list[str] = []  # arguments of pytest, which chooses the quick suite without any
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
    found = _program("loaders/test_hostile.py", INPUTS)
    return Claim(len(found["failed"]), "inputs", 0, better="lower", detail=found | {"failed": found["failed"][:5]})


def sockets_beyond_loopback() -> Claim:
    """Sockets of local jobs and of a SparkCluster that others can reach, by the kernel's tables, every 20 ms."""
    found = _program("spark/test_network.py")
    return Claim(len(found["beyond"]), "sockets", 0, better="lower", detail=found)


def power_cuts_and_kills_survived() -> Claim:
    """Power cuts (simulated) and kill -9 at any moment after which state and sink have each committed record once."""
    found = _program("spark/test_power.py", CUTS)
    return Claim(CUTS - len(found["failed"]), f"of {CUTS}", CUTS, detail=found | {"failed": found["failed"][:5]})


def quick_suite_failures() -> Claim:
    """Tests that fail in five runs of the quick suite beside two endless loops; DSPKIT_SUITE_RUNS is another number."""
    sys.path.insert(0, str(ROOT / ".ci"))
    from tested import attempt  # type: ignore[import-not-found]

    failed: list[str] = []
    tests = 0
    for run in range(runs := int(os.environ.get("DSPKIT_SUITE_RUNS", "5"))):
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
        try:
            outcome = attempt(QUICK, ROOT / "build" / f"busy-{run}.xml")
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
        if not outcome.ran:
            raise RuntimeError(f"pytest ended with exit code {outcome.code} before its tests did")
        failed += outcome.failed
        tests += len(outcome.ran)
    return Claim(len(failed), "tests", 0, better="lower", detail={"runs": runs, "tests": tests, "failed": failed})


def _program(file: str, *arguments: object) -> dict[str, Any]:
    """Run a file of the tests as a program, and return what it prints at its end, with its seconds."""
    command = [sys.executable, "-W", "ignore", str(ROOT / "tests" / file), *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("", "tests", ".ci"))}
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:  # the process itself was ended, so that the rest is not known
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"seconds": round(time.monotonic() - began, 1)}


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
