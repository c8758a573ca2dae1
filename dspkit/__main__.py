"""The command line: `dspkit lab`, `run`, `compare`, `watch`, `demo`, `advise`, `report`, `doctor` and `cite`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import __version__
from .core import ArgumentError, DspkitError, NotFoundError
from .core.errors import visible
from .core.lazy import load


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

    here = Path(__file__).parent
    source = next((folder for folder in (here / "lab", here.parent) if (folder / "notebooks").is_dir()), None)
    if source is None:
        raise NotFoundError("an installation without notebooks", expected="them", fix="install dspkit from its wheel")
    copied = kept = 0
    for part in ("notebooks", "reproduction", "data", "docs", "CONTRIBUTING.md"):  # the notebooks link to these
        files = (source / part).rglob("*") if (source / part).is_dir() else [source / part]
        for file in sorted(path for path in files if path.is_file() and not _made(path)):
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
    load("jupyterlab", "notebooks")
    path = os.pathsep.join(filter(None, (str(args.folder.resolve()), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={args.folder}"]
    command += ["--LabApp.default_url=/lab/tree/notebooks/00_start.ipynb"]
    return subprocess.run([*command, *args.jupyter], env=os.environ | {"PYTHONPATH": path}, check=False).returncode


def _made(path: Path) -> bool:
    return path.suffix == ".pyc" or ".ipynb_checkpoints" in path.parts


def _run(args: argparse.Namespace) -> None:
    """Run a policy on a simulated application; print each window, and keep it in runs/ for `watch`."""
    from . import apps, policies, report
    from .core import History, files, record
    from .demo import head, row

    app, policy = apps.get(args.app)(), _policy(args.policy, policies)
    job = app.simulator(scale=args.scale, window_s=args.window, seed=args.seed)
    history, shown = History(job.topology), files.home("runs")
    files.make_folder(shown)
    name = f"{args.app}-{policy.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    print(head("records"), flush=True)
    with job, open(shown / f"{name}{_LIVE}", "x", encoding="utf-8") as file:
        for step in record(history, policy, job, steps=args.windows, settle=args.settle, seed=args.seed):
            line = row(step)
            print(line, flush=True)
            print(
                json.dumps({"run": name, "window": len(history), "of": args.windows, "line": line}),
                file=file,
                flush=True,
            )
            if args.speed:
                time.sleep(1 / args.speed)
    try:
        kept = f"in {history.save(shown / f'{name}.parquet')}"
    except NotFoundError as error:  # of a plain installation
        kept = f"not kept: {error}"
    print(f"\n{app.name} under {policy.name}, {len(history)} windows, {kept}")
    if args.report:
        print(f"The report: {report.from_history(history, target_latency_s=app.target_latency_s)}")


_LIVE = ".jsonl"  # lines of a run that is written, in runs/
_MOST = 1_000_000  # bytes of such a file that are read at once


def _policy(text: str, policies: Any) -> Any:
    """Return the policy of a name, or of a call such as DS2(activation=3), which is read and not evaluated."""
    from .core.parameters import read_literal

    if "(" not in text:
        return policies.get(text)()
    return read_literal(text, {cls.__name__: cls for cls in policies.available().values()})


def _watch(args: argparse.Namespace) -> None:
    """Follow the runs that processes write into a folder, until Ctrl-C."""
    if not args.folder.is_dir():
        raise NotFoundError(str(args.folder), expected="a folder of runs", fix="start one: dspkit run")
    read: dict[Path, int] = {}
    if not args.all and not args.once:  # those that were over before are not news
        read = {path: path.stat().st_size for path in args.folder.glob(f"*{_LIVE}") if _over(path)}
    last = None
    while True:
        for path in sorted(args.folder.glob(f"*{_LIVE}")):
            before = -1
            while before != (before := read.get(path, 0)):  # a long file comes in parts
                lines, read[path] = _new_lines(path, before)
                for line in lines:
                    if last != path:
                        print(f"\n{visible(path.stem)}", flush=True)
                        last = path
                    print(line, flush=True)
        if args.once:
            return
        time.sleep(0.3)


def _over(path: Path) -> bool:
    return path.with_suffix(".parquet").exists()


def _new_lines(path: Path, start: int) -> tuple[list[str], int]:
    """Return what was written since, as lines to print, and where they end; a line that is half written waits."""
    from .core import files

    with files.open_regular(path) as file:  # a pipe would never answer
        file.seek(start)
        part = file.read(_MOST)
    whole = part.rpartition(b"\n")[0]
    if not whole:
        return (["(a line that is not of a run)"], start + _MOST) if len(part) == _MOST else ([], start)
    lines = []
    for raw in whole.split(b"\n"):
        try:
            told = json.loads(raw)
            lines.append(f"{int(told['window']):4} of {int(told['of'])}  {visible(str(told['line']))[:400]}")
        except (ValueError, KeyError, TypeError, RecursionError):
            lines.append("(a line that is not of a run)")
    return lines, start + len(whole) + 1


def _demo(args: argparse.Namespace) -> None:
    from . import demo

    demo.main(args.options)


def _compare(args: argparse.Namespace) -> None:
    """Print what each policy did with the same job under the same load."""
    from . import apps, policies
    from .comparison.scores import side_by_side
    from .core import run

    app, runs = apps.get(args.app)(), {}
    for text in args.policies:
        policy = _policy(text, policies)
        with app.simulator(scale=args.scale, seed=args.seed) as job:
            runs[text] = run(policy, job, steps=args.windows, settle=args.settle, seed=args.seed)
        print(f"{text}: {len(runs[text])} windows", file=sys.stderr, flush=True)
    print(side_by_side(runs, app.target_latency_s).round(1).to_string())


def _advise(args: argparse.Namespace) -> None:
    """Print what the policies recommend for a recorded job."""
    from . import advise, loaders
    from .core import FileError, History

    job: Any = None
    if args.file.suffix == ".parquet":
        with contextlib.suppress(FileError):
            job = History.load(args.file)
    if job is None:
        columns = {name: _column(told) for name, told in (_pair(text) for text in args.columns)}
        parallelism: Any = int(args.parallelism) if args.parallelism else None
        job = loaders.Table(args.file, columns=columns, topology=_graph(args.graph), parallelism=parallelism)
    advice = advise(job, target_latency_s=args.target_latency_s, engine=args.engine)
    print(advice)
    if problems := getattr(job, "problems", ""):
        print(f"\n{problems}")
    if args.report:
        print(f"\nThe report: {advice.report()}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, told = text.partition("=")
    if not equals or not name or not told:
        raise ArgumentError(repr(text), expected="QUANTITY=COLUMN or QUANTITY=COLUMN:UNIT", fix="as in t=time")
    return name, told


def _column(told: str) -> str | tuple[str, str]:
    column, colon, unit = told.rpartition(":")
    return (column, unit) if colon else told


def _graph(text: str | None) -> Any:
    """Return the graph of "read>work,work>write", or None."""
    from .core import Operator, Topology

    if text is None:
        return None
    edges: list[tuple[str, str]] = []
    for edge in text.split(","):
        ends = [name.strip() for name in edge.split(">")]
        if len(ends) < 2 or not all(ends):
            raise ArgumentError(repr(edge), expected="operators joined by >, as in read>work", fix="check --graph")
        edges += zip(ends, ends[1:], strict=False)
    names = dict.fromkeys(name for edge in edges for name in edge)
    return Topology(tuple(Operator(name) for name in names), tuple(dict.fromkeys(edges)))


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
    _add_runs(commands)
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


def _add_runs(commands: Any) -> None:
    """Add the commands that run, compare, follow and advise."""
    run = commands.add_parser(
        "run",
        help="run a policy on a simulated application",
        description="Run a policy on a simulated application, one line per window. The run is kept in runs/.",
    )
    compare = commands.add_parser("compare", help="run several policies on the same job, and print their scores")
    run.add_argument("--policy", default="ds2", help="a name, or a call as 'DS2(activation=3)' (ds2)")
    compare.add_argument("policies", nargs="+", metavar="POLICY", help="names, or calls as 'DS2(activation=3)'")
    for each in (run, compare):
        each.add_argument("--app", default="word_count", help="the application (word_count)")
        each.add_argument("--windows", type=int, default=90, metavar="N", help="length of the run in windows (90)")
        each.add_argument("--scale", type=float, default=1.0, metavar="X", help="how many times the load (1)")
        each.add_argument("--settle", type=int, default=0, metavar="N", help="windows after a change without decision")
        each.add_argument("--seed", type=int, default=0, metavar="N", help="seed of policy and simulator (0)")
    run.add_argument("--window", type=float, default=10.0, metavar="S", help="length of a window in seconds (10)")
    run.add_argument("--speed", type=float, default=0.0, metavar="N", help="windows per second (as fast as possible)")
    run.add_argument("--report", action="store_true", help="write one HTML file as well")
    run.set_defaults(run=_run)
    compare.set_defaults(run=_compare)
    watch = commands.add_parser(
        "watch",
        help="follow the runs that other processes write",
        description="Print each new window of all runs in a folder as it is written, until Ctrl-C.",
    )
    watch.add_argument("folder", type=Path, nargs="?", default=Path("runs"), help="the folder (runs)")
    watch.add_argument("--once", action="store_true", help="print what is there, and end")
    watch.add_argument("--all", action="store_true", help="begin with the runs that are over")
    watch.set_defaults(run=_watch)
    said = "an application on local Spark under a policy, for two minutes"
    demo = commands.add_parser("demo", help=said, add_help=False, prefix_chars="\0")  # all is for demo.main
    demo.add_argument("options", nargs="*")
    demo.set_defaults(run=_demo)
    advise = commands.add_parser(
        "advise",
        help="recommendations for a job of yours, from a table of its metrics",
        description="Read a table with one row per window and operator (.csv, .parquet) or a saved run, and print what "
        "the policies recommend.",
    )
    advise.add_argument("file", type=Path, metavar="FILE", help="a table, or a saved run")
    advise.add_argument(
        "--columns", nargs="*", default=[], metavar="QUANTITY=COLUMN[:UNIT]", help="as t=time busy=b:ms/s"
    )
    advise.add_argument("--graph", metavar="EDGES", help='the operators, as "read>parse,parse>count"')
    advise.add_argument(
        "--parallelism", type=int, metavar="N", help="instances of all operators, if no column has them"
    )
    advise.add_argument("--target-latency-s", type=float, metavar="S", help="the mean latency to meet")
    advise.add_argument("--engine", help="flink, spark, storm or dspkit: whose settings to print")
    advise.add_argument("--report", action="store_true", help="write one HTML file as well")
    advise.set_defaults(run=_advise)


STATES = ("idle", "keeps up", "behind", "unhealthy", "stuck", "ended", "unknown")

if __name__ == "__main__":
    sys.exit(main())
