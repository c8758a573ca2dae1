"""Live Spark: everything here needs the `spark` extra, and nothing here imports pyspark before it is used."""

from .cluster import SparkCluster
from .errors import CheckpointError, ClusterError, FunctionError, QueryError, SchemaError, SessionError
from .functions import Function, arrow, dataframe, frame, keyed, sql
from .java import Java, JavaError, ensure_java
from .job import SparkJob
from .source import TraceSource

__all__ = [
    "CheckpointError", "ClusterError", "Function", "FunctionError", "Java", "JavaError", "QueryError", "SchemaError",
    "SessionError", "SparkCluster", "SparkJob", "TraceSource", "arrow", "dataframe", "ensure_java", "frame", "keyed",
    "sql",
]  # fmt: skip
