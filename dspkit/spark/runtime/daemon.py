"""Spark's own daemon of Python workers, after importing the libraries of our tasks.

Workers are forked from it: so a new one is ready in some ten milliseconds, and all share the memory of these libraries.
Libraries that start threads when they are imported, as pyarrow does, are left to the workers. What lives here is left
out when a worker looks for garbage, which Spark lets it do between two epochs, and which would copy that memory.
"""

import gc

from pyspark import daemon

from ..dataflow import task  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    daemon.manager()
