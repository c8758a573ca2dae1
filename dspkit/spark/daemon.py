"""Spark's own daemon of Python workers, after importing what every task of ours needs.

Workers are forked from it: so one is there in some ten milliseconds, and all share the memory of these libraries.
"""

import numpy  # noqa: F401
import pyarrow.ipc  # noqa: F401
from pyspark import daemon

from dspkit.spark import task  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
