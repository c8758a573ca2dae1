"""Metrics of any engine as a History: one module per source, one protocol (`Loader`).

Each loader reads with `.history()` and counts dropped readings in `.problems`; docs/loaders.md describes their input.
"""

from .common.base import LIMITS, Limits, Loader, LoaderError, Problems
from .common.names import DSPKIT, FLINK, FLINK_INFLUX, SPARK, Names
from .flink import FlinkRest
from .influxdb import InfluxDB
from .prometheus import Prometheus
from .spark.event_log import SparkEventLog
from .spark.progress import SparkProgress
from .spark.rest import SparkRest
from .storm import StormUI
from .table import Guess, Table, guess_columns, peek

__all__ = [
    "DSPKIT", "FLINK", "FLINK_INFLUX", "LIMITS", "SPARK", "FlinkRest", "Guess", "InfluxDB", "Limits", "Loader",
    "LoaderError", "Names", "Problems", "Prometheus", "SparkEventLog", "SparkProgress", "SparkRest", "StormUI", "Table",
    "guess_columns", "peek",
]  # fmt: skip
