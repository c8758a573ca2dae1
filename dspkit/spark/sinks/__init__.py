"""Sinks of live jobs, which get each row exactly once: Parquet files, SQL databases, a table of the newest rows."""
