"""The command line: `python -m dspkit report FILE`, `python -m dspkit cite NAME`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import __version__
from .core import DspkitError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 2 with one line on stderr after an error.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default those of the process.

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
        args.run(args)
    except DspkitError as error:
        print(f"dspkit: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dspkit: stopped", file=sys.stderr)
        return 130
    return 0


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dspkit", description="A laboratory for elastic stream processing.")
    parser.add_argument("--version", action="version", version=f"dspkit {__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="")
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
    return parser


if __name__ == "__main__":
    sys.exit(main())
