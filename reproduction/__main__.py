"""Generate docs/reproduction.md: `python -m reproduction`, or `make reproduce`."""

from __future__ import annotations

import argparse
import os
import sys

from dspkit.core import DspkitError

from . import ledger, page
from .making import reproduce


def main() -> None:
    asks = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    asks.add_argument("--only", default="", help=f"sections, separated by commas: {', '.join(page.names())}")
    asks.add_argument("--parts", default="", help="only these parts of the sections, separated by semicolons")
    asks.add_argument("--long", action="store_true", help="also live Spark, on an otherwise idle machine")
    asks.add_argument("--fresh", action="store_true", help="recompute parts that are cached")
    asks.add_argument("--render", action="store_true", help="only write the page from the existing results")
    asks.add_argument("--processes", type=int, default=2)
    told = asks.parse_args()
    if told.processes < 1:
        asks.error(f"got --processes {told.processes}; expected 1 or more")
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    only = [name.strip() for name in told.only.split(",") if name.strip()] or list(page.names())
    parts = [name.strip() for name in told.parts.split(";") if name.strip()]
    try:
        failed = []
        if not told.render:
            failed = reproduce(only, processes=told.processes, long=told.long, fresh=told.fresh, parts=parts)
        if failed:
            sys.exit(f"failed: {'; '.join(failed)}. The page is unchanged; repeat the command to continue.")
        print(page.write())
        print(ledger.write())
    except DspkitError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
