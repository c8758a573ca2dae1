"""Live Spark: everything here needs the `spark` extra, and nothing here imports pyspark before it is used."""

from .errors import CheckpointError, FunctionError, QueryError, SchemaError, SessionError, SourceError
from .functions import Function, arrow, frame, keyed
from .java import Java, JavaError, ensure_java
from .job import SparkJob
from .source import TraceSource
from .source_files import FileSource
from .source_kafka import KafkaSource
from .source_redis import RedisSource

__all__ = [
    "CheckpointError", "FileSource", "Function", "FunctionError", "Java", "JavaError", "KafkaSource", "QueryError",
    "RedisSource", "SchemaError", "SessionError", "SourceError", "SparkJob", "TraceSource", "arrow", "ensure_java",
    "frame", "keyed",
]  # fmt: skip
