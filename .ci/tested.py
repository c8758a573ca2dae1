"""Both halves of the test suite, with a second try for what failed once, and a limit on how much may need one.

Live tests share the cores with several JVMs. A test that fails once and then passes is reported and counted; if more
than one in 500 needs a second try, the run fails all the same. A test that did not run (it was skipped, and
DSPKIT_REQUIRE_ALL is set) is no failure of the test, and a second try would skip it again: the run then fails and says
so.
"""

import os
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HALVES = ([], ["-m", "slow", "-v", "--durations=25"])  # by name: a log that was cut off says what ran last
LIMIT = 1 / 500  # of all tests


@dataclass(frozen=True)
class Outcome:
    """The outcome of one run of the tests: its exit code, and their names."""

    code: int
    ran: tuple[str, ...]
    failed: tuple[str, ...]
    skipped: tuple[str, ...]


def make_test(arguments: list[str]) -> int:
    """Return 0 or, whatever pytest's own exit code was, that of make for an error: 2."""
    return subprocess.call(["make", "test", f"ARGS={shlex.join(arguments)}"], cwd=ROOT)


def attempt(arguments: list[str], report: Path, run=make_test) -> Outcome:
    """Run the tests, and read its report, which is not there if pytest did not come to its end."""
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    code = run([*arguments, f"--junitxml={report}"])
    names: dict[str, list[str]] = {"ran": [], "failed": [], "skipped": []}
    if report.exists():
        for case in ET.parse(report).iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            kinds = {child.tag for child in case}
            names["ran"].append(name)
            if kinds & {"failure", "error"}:
                names["failed"].append(name)
            elif "skipped" in kinds:
                names["skipped"].append(name)
    return Outcome(code, *(tuple(dict.fromkeys(names[kind])) for kind in ("ran", "failed", "skipped")))


def main(run=make_test, folder: Path = ROOT / "build") -> str:
    """Return why the suite does not pass, or ''."""
    ran, again, reasons = 0, [], []
    for number, half in enumerate(HALVES):
        first = attempt(half, folder / f"tests-{number}.xml", run)
        ran += len(first.ran)
        if first.code == 0:
            continue
        if not first.ran:
            return f"pytest ended with exit code {first.code} before its tests did"
        if os.environ.get("DSPKIT_REQUIRE_ALL") and first.skipped:
            reasons.append(f"{len(first.skipped)} tests did not run: {_few(first.skipped)}; install what they ask for")
        if first.failed:
            print(f"FAILED ONCE, TRIED AGAIN: {_few(first.failed)}", flush=True)
            again += first.failed
            second = attempt([*half, "--last-failed"], folder / f"tests-{number}-again.xml", run)
            if second.failed or not second.ran:
                reasons.append(f"failed twice: {_few(second.failed) or f'exit code {second.code}'}")
        elif not reasons:
            reasons.append(f"pytest ended with exit code {first.code}, without a test that failed or was skipped")
    if again:
        print(f"{len(again)} of {ran} tests needed a second try: {_few(again)}. Fix what they found, or them.")
    if len(again) > LIMIT * ran:
        reasons.append(f"{len(again)} of {ran} tests needed a second try, which is more than 1 in {1 / LIMIT:.0f}")
    return "; ".join(reasons)


def _few(names: "tuple[str, ...] | list[str]") -> str:
    return ", ".join(names[:20]) + f" and {len(names) - 20} more" * (len(names) > 20)


if __name__ == "__main__":
    sys.exit(f"FAILED: {why}" if (why := main()) else 0)
