"""Mappings from external metric names to quantities: ready ones for Flink and Spark, and the form of your own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .base import LoaderError
from .units import OPTIONAL, QUANTITIES, Unit, unit


@dataclass(frozen=True)
class Names:
    """A mapping from external metric names to quantities and units, with the labels that identify operators.

    Parameters
    ----------
    metrics : mapping
        `{name: quantity}` or `{name: (quantity, unit)}`. For Prometheus a name may be a regular expression whose group
        `operator` names the operator; for InfluxDB it is "measurement.field".
    operator : str
        The label that names the operator.
    instance : str
        The label that distinguishes the instances of an operator; without one an operator has one series, and counts
        as one instance.
    job : str
        A label that must have one value everywhere: rates of two jobs are never added up.

    Examples
    --------
    >>> mine = Names({"app_events_total": ("processing_rate", "counter")}, operator="stage", instance="pod")
    >>> mine.units["app_events_total"][0]
    'processing_rate'
    """

    metrics: Mapping[str, str | tuple[str, str]]
    operator: str = ""
    instance: str = ""
    job: str = ""
    units: Mapping[str, tuple[str, Unit]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        made = {}
        if not isinstance(self.metrics, Mapping) or not self.metrics:
            raise LoaderError(f"metrics={self.metrics!r:.200}", expected="{name: quantity}", fix="name at least one")
        for name, told in self.metrics.items():
            quantity, of = told if isinstance(told, tuple) and len(told) == 2 else (told, None)
            if not isinstance(name, str) or not isinstance(quantity, str):
                raise LoaderError(
                    f"metrics={{{name!r}: {told!r}}}",
                    expected="{name: quantity}",
                    fix="map each name to one quantity, as text",
                )
            try:
                re.compile(name)
            except re.error as error:
                raise LoaderError(
                    f"metric {name!r}: {error}", expected="a regular expression", fix="correct it"
                ) from None
            made[name] = (quantity, unit(quantity, of))
            if made[name][1].how == "window":
                raise LoaderError(
                    f"{name!r} in {of!r}", expected="a rate, or a counter", fix="use a rate: samples have no window"
                )
        if not any(quantity not in OPTIONAL for quantity, _ in made.values()):
            raise LoaderError(f"no metric for any of {', '.join(QUANTITIES)}", expected="rates", fix="name one")
        object.__setattr__(self, "units", made)


_TASK = "flink_taskmanager_job_task_"
FLINK = Names(  # Flink's Prometheus reporter, 1.13 and later
    {
        _TASK + "numRecordsIn": ("processing_rate", "counter"),
        _TASK + "numRecordsOut": ("output_rate", "counter"),
        _TASK + "busyTimeMsPerSecond": ("utilisation", "ms/s"),
        _TASK + "backPressuredTimeMsPerSecond": ("blocked", "ms/s"),
        _TASK + "operator_pendingRecords": "backlog",
    },
    operator="task_name",
    instance="subtask_index",
    job="job_id",
)
SPARK = Names(  # Spark's PrometheusServlet, with spark.sql.streaming.metricsEnabled=true: a query as one operator
    {
        r"metrics_.*_driver_spark_streaming_(?P<operator>.+)_inputRate_total_Value": "processing_rate",
        r"metrics_.*_driver_spark_streaming_(?P<operator>.+)_processingRate_total_Value": "capacity",
    }
)
FLINK_INFLUX = Names(  # Flink's InfluxDB reporter
    {
        "taskmanager_job_task_numRecordsIn.count": ("processing_rate", "counter"),
        "taskmanager_job_task_numRecordsOut.count": ("output_rate", "counter"),
        "taskmanager_job_task_busyTimeMsPerSecond.value": ("utilisation", "ms/s"),
        "taskmanager_job_task_backPressuredTimeMsPerSecond.value": ("blocked", "ms/s"),
        "taskmanager_job_task_operator_pendingRecords.value": "backlog",
    },
    operator="task_name",
    instance="subtask_index",
    job="job_id",
)
DSPKIT = Names(  # the output of `line_protocol.lines`
    {f"dspkit.{quantity}": quantity for quantity in QUANTITIES if quantity != "capacity"},
    operator="operator",
    job="run",
)
