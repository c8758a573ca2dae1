"""Metrics of somebody else's engine as a History: one file a source, one protocol (`Loader`).

Each loader reads with `.history()` and counts in `.problems` what it dropped. docs/loaders.md says what each reads.
"""

from .base import LIMITS, Limits, Loader, LoaderError, Problems
from .flink_rest import FlinkRest
from .influxdb import InfluxDB
from .names import DSPKIT, FLINK, FLINK_INFLUX, SPARK, Names
from .prometheus import Prometheus
from .spark_log import SparkEventLog
from .spark_progress import SparkProgress
from .spark_rest import SparkRest
from .storm_ui import StormUI
from .table import Table

__all__ = [
    "DSPKIT", "FLINK", "FLINK_INFLUX", "LIMITS", "SPARK", "FlinkRest", "InfluxDB", "Limits", "Loader", "LoaderError",
    "Names", "Problems", "Prometheus", "SparkEventLog", "SparkProgress", "SparkRest", "StormUI", "Table",
]  # fmt: skip
