"""Spark's own daemon of Python workers, after importing the libraries of our tasks.

Workers are forked from it: so a new one is ready in some ten milliseconds, and all share the memory of these libraries.
"""

from pyspark import daemon

from ..dataflow import task  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
