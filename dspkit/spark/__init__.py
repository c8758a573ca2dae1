"""Live Spark: a PySpark job as a Backend. Everything here needs the `spark` extra; pyspark is imported on first use."""

from .errors import (
    CheckpointError,
    ClusterError,
    FunctionError,
    QueryError,
    SchemaError,
    SessionError,
    SinkError,
    SourceError,
    ThreadError,
)
from .event_time import EventTime
from .functions import Function, arrow, dataframe, frame, keyed, sql
from .job import SparkJob
from .runtime.cluster import SparkCluster
from .runtime.java import Java, JavaError, ensure_java
from .sinks.kafka import KafkaSink
from .sinks.parquet import ParquetSink, TableSink
from .sinks.sink import Sink
from .sinks.sql import SqlSink
from .sources.files import FileSource
from .sources.kafka import KafkaSource
from .sources.redis import RedisSource
from .sources.trace import TraceSource, TurnedSource
from .stock.job import AttachedQuery, Recording, attach, repartition
from .stock.observation import AttachError, RealtimeSlots, realtime_slots
from .windows import EventWindow, windowed

__all__ = [
    "AttachError",
    "AttachedQuery",
    "CheckpointError",
    "ClusterError",
    "EventTime",
    "EventWindow",
    "FileSource",
    "Function",
    "FunctionError",
    "Java",
    "JavaError",
    "KafkaSink",
    "KafkaSource",
    "ParquetSink",
    "QueryError",
    "RealtimeSlots",
    "Recording",
    "RedisSource",
    "SchemaError",
    "SessionError",
    "Sink",
    "SinkError",
    "SourceError",
    "SparkCluster",
    "SparkJob",
    "SqlSink",
    "TableSink",
    "ThreadError",
    "TraceSource",
    "TurnedSource",
    "arrow",
    "attach",
    "dataframe",
    "ensure_java",
    "frame",
    "keyed",
    "realtime_slots",
    "repartition",
    "sql",
    "windowed",
]
