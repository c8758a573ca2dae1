"""Live Spark: everything here needs the `spark` extra, and nothing here imports pyspark before it is used."""

from .java import Java, JavaError, ensure_java

__all__ = ["Java", "JavaError", "ensure_java"]
