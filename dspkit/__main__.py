"""The command line: `dspkit lab`, `dspkit report FILE`, `dspkit doctor LOG`, `dspkit cite NAME`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import __version__
from .core import DspkitError, NotFoundError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 2 with one line on stderr after an error.

    `doctor` returns 1 if the query is in one of the states of `--fail-if`.

    Examples
    --------
    >>> main(["cite", "no_such_work"])
    2
    """
    parser = _parser()
    args = parser.parse_args(argv)
    if args.run is None:
        parser.print_help()
        return 0
    try:
        code = args.run(args)
    except DspkitError as error:
        print(f"dspkit: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dspkit: stopped", file=sys.stderr)
        return 130
    return int(code or 0)


def _lab(args: argparse.Namespace) -> int:
    import shutil
    import subprocess
    from importlib.util import find_spec

    here = Path(__file__).parent
    source = next((folder for folder in (here / "lab", here.parent) if (folder / "notebooks").is_dir()), None)
    if source is None:
        raise NotFoundError("an installation without notebooks", expected="them", fix="install dspkit from its wheel")
    copied = kept = 0
    for part in ("notebooks", "reproduction", "data"):
        for file in sorted(path for path in (source / part).rglob("*") if path.is_file() and not _made(path)):
            to = args.folder / file.relative_to(source)
            if to.exists():  # it may be changed: a person's work is not replaced
                kept += 1
                continue
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to)
            copied += 1
    print(f"{args.folder}: {copied} files copied, {kept} kept as they are")
    if args.no_open:
        return 0
    if find_spec("jupyterlab") is None:
        fix = "pip install 'dspkit[notebooks]'"
        raise NotFoundError("no module 'jupyterlab'", expected="the extra 'notebooks' installed", fix=fix)
    path = os.pathsep.join(filter(None, (str(args.folder.resolve()), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={args.folder}"]
    command += ["--LabApp.default_url=/lab/tree/notebooks/00_start.ipynb"]
    return subprocess.run([*command, *args.jupyter], env=os.environ | {"PYTHONPATH": path}, check=False).returncode


def _made(path: Path) -> bool:
    return path.suffix == ".pyc" or ".ipynb_checkpoints" in path.parts


def _report(args: argparse.Namespace) -> None:
    from . import report
    from .core import History

    started = time.monotonic()
    if args.file.suffix == ".parquet":
        path = report.from_history(History.load(args.file), args.out, overwrite=args.overwrite)
    else:
        path = report.from_notebook(args.file, args.out, timeout_s=args.timeout, overwrite=args.overwrite)
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB, in {time.monotonic() - started:.1f} s)")


def _cite(args: argparse.Namespace) -> None:
    from .core.references import cite

    print(cite(args.names or None))


def _doctor(args: argparse.Namespace) -> int:
    from . import loaders
    from .spark import attach

    remote = str(args.source).startswith(("http://", "https://"))
    loader = loaders.SparkRest(args.source, query=args.query) if remote else _recorded(args)
    told = attach(loader).doctor()
    print(told.to_json() if args.json else told)
    return int(told.state in args.fail_if)


def _recorded(args: argparse.Namespace) -> Any:
    """Return the loader of a file: an event log, or lines of progress."""
    from . import loaders

    with contextlib.suppress(OSError), open(args.source, "rb") as file:
        head = file.read(4096)
        if head.lstrip().startswith(b"{") and b'"Event"' not in head and b'"batchId"' in head:
            return loaders.SparkProgress(args.source, query=args.query, parallelism=args.slots)
    return loaders.SparkEventLog(args.source, query=args.query)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dspkit", description="A laboratory for elastic stream processing.")
    parser.add_argument("--version", action="version", version=f"dspkit {__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="")
    lab = commands.add_parser(
        "lab",
        help="copy the notebooks into a folder, and open them in JupyterLab",
        description="Copy the notebooks, with the studies and the recording that they read, into a folder, and open "
        "JupyterLab on them, on this machine only. Files that are there already are kept.",
    )
    lab.add_argument("folder", type=Path, nargs="?", default=Path("dspkit-lab"), help="default: dspkit-lab")
    lab.add_argument("--no-open", action="store_true", help="copy only")
    lab.add_argument("--jupyter", nargs=argparse.REMAINDER, default=[], metavar="OPTION", help="options of JupyterLab")
    lab.set_defaults(run=_lab)
    report = commands.add_parser(
        "report",
        help="run a notebook, or read a saved run, and write one HTML file",
        description="Run a notebook headless (.ipynb), or read a run that History.save() wrote (.parquet), and write "
        "one HTML file that opens offline. Prints its path.",
    )
    report.add_argument("file", type=Path, metavar="FILE", help="a notebook (.ipynb) or a saved run (.parquet)")
    report.add_argument("--out", type=Path, metavar="FILE", help="where to write it; else a new file in reports/")
    report.add_argument("--overwrite", action="store_true", help="replace the file given with --out")
    report.add_argument("--timeout", type=float, default=300, metavar="S", help="seconds for each cell (default 300)")
    report.set_defaults(run=_report)
    cite = commands.add_parser("cite", help="print the BibTeX of works that dspkit builds on")
    cite.add_argument(
        "names", nargs="*", metavar="NAME", help="reference keys; none: dspkit and the systems it rebuilds"
    )
    cite.set_defaults(run=_cite)
    doctor = commands.add_parser(
        "doctor",
        help="diagnose a Structured Streaming query from its event log, its progress or its REST API",
        description="Print the state of a Spark Structured Streaming query, the cause, and settings to paste. The exit "
        "code is 0, 1 if the state is one of --fail-if, or 2 after an error.",
    )
    doctor.add_argument("source", metavar="LOG_OR_URL", help="an event log, lines of progress, or http://HOST:4040")
    doctor.add_argument("--fail-if", nargs="+", default=[], metavar="STATE", choices=STATES, help=", ".join(STATES))
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.add_argument("--query", metavar="ID", help="the id of the query, if there are several")
    doctor.add_argument("--slots", type=int, default=1, metavar="N", help="slots of the cluster, for lines of progress")
    doctor.set_defaults(run=_doctor)
    return parser


STATES = ("idle", "keeps up", "behind", "unhealthy", "stuck", "ended", "unknown")

if __name__ == "__main__":
    sys.exit(main())
