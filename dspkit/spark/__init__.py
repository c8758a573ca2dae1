"""Live Spark: everything here needs the `spark` extra, and nothing here imports pyspark before it is used."""

from .cluster import SparkCluster
from .errors import CheckpointError, ClusterError, FunctionError, QueryError, SchemaError, SessionError, SourceError
from .functions import Function, arrow, dataframe, frame, keyed, sql
from .java import Java, JavaError, ensure_java
from .job import SparkJob
from .source import TraceSource
from .source_files import FileSource
from .source_kafka import KafkaSource
from .source_redis import RedisSource

__all__ = [
    "CheckpointError", "ClusterError", "FileSource", "Function", "FunctionError", "Java", "JavaError", "KafkaSource",
    "QueryError", "RedisSource", "SchemaError", "SessionError", "SourceError", "SparkCluster", "SparkJob",
    "TraceSource", "arrow", "dataframe", "ensure_java", "frame", "keyed", "sql",
]  # fmt: skip
