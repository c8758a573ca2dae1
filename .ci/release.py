"""A release up to its upload: `make release` builds the sdist and the wheel, and checks all that can be checked.

One version stands in dspkit/__init__.py; the changelog, CITATION.cff and codemeta.json must say the same.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def version() -> str:
    text = (ROOT / "dspkit" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def objections(now: str, *, released: bool) -> list[str]:
    """Return what does not fit this version; a release needs a date in the changelog."""
    wrong = []
    cff = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    if f"\nversion: {now}\n" not in cff:
        wrong.append(f"CITATION.cff: no line 'version: {now}'")
    if json.loads((ROOT / "codemeta.json").read_text(encoding="utf-8")).get("version") != now:
        wrong.append(f"codemeta.json: its version is not {now}")
    heading = re.search(r"^## (\S+) \((.*)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    if heading is None or heading[1] != now:
        wrong.append(f"CHANGELOG.md: its first version is not {now}")
    elif released and not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[2]):
        wrong.append(f"CHANGELOG.md: {now} has no date, but ({heading[2]})")
    status = ["git", "status", "--porcelain"]
    checkout = (ROOT / ".git").exists()  # an unpacked source distribution has none
    if released and checkout and subprocess.run(status, cwd=ROOT, capture_output=True, check=True).stdout:
        wrong.append("files that are not committed: one in notebooks/ would be released")
    return wrong


def licences(names: list[str]) -> list[str]:
    """Return what a file of the release lacks: our licence, and those of data, which their page states."""
    wanted = ("LICENSE", "data/README.md")
    return [f"no {part} in it" for part in wanted if not any(name.endswith(part) for name in names)]


def main(args: argparse.Namespace) -> int:
    now = version()
    wrong = objections(now, released=args.tag is not None)
    if args.tag is not None and args.tag != f"v{now}":
        wrong.append(f"the tag {args.tag} is not v{now}")
    dist = ROOT / "dist"
    for former in dist.glob("dspkit-*"):
        former.unlink()
    command = [sys.executable, "-m", "build", "--outdir", str(dist), *(["--no-isolation"] if args.no_isolation else [])]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)], check=True)
    with zipfile.ZipFile(wheel) as archive:
        wrong += [f"{wheel.name}: {what}" for what in licences(archive.namelist())]
    with tarfile.open(sdist) as tar:
        wrong += [f"{sdist.name}: {what}" for what in licences(tar.getnames())]
    for path in (wheel, sdist):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.2f} MB")
    for line in wrong:
        print(f"release: {line}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", help="the tag of this release, as v0.1.0; without it, this is a rehearsal")
    parser.add_argument("--no-isolation", action="store_true", help="build with the packages that are here")
    sys.exit(main(parser.parse_args()))
