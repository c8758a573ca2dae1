"""Metrics of Spark jobs: event logs, the REST API, and the progress of streaming queries."""
