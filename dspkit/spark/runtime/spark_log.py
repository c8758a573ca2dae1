"""The files that Spark writes to: its own log, and what Java and the Python workers print. Nothing reaches a notebook.

They lie in the checkpoint of the job that started Spark, otherwise below $DSPKIT_HOME or in a private temporary folder.
Both are bounded: Spark's log is rotated, and the older half of the output is dropped.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from ..errors import java_error, python_error

SETTING = "spark.dspkit.log"  # the folder, as a setting of Spark
_SIZE = 4 << 20  # bytes of a file of Spark's log, of which there are two, and of the output
_TAIL = 1 << 18  # bytes at the end of a file in which a reason is looked for
_KEPT = 10  # folders of former sessions
_TRIM_S = 1.0
_CONFIGURATION = """status = off
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/spark.log
appender.file.filePattern = {pattern}/spark.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.charset = UTF-8
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %-5p %c{{1}}: %m%n%ex
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = {size}
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
# Spark repeats at each epoch that Python operators are not on its list for real-time mode.
logger.allowlist.name = org.apache.spark.sql.execution.streaming.runtime.RealTimeModeAllowlist
logger.allowlist.level = error
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""
_RECORD = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (ERROR|WARN |FATAL) \S+ ", re.MULTILINE)
# Tasks that ended because another one did.
_VICTIM = re.compile(
    r"streaming shuffle|TaskKilled|TaskKilledException|task was cancelled|Stage cancelled|aborting job"
)
_PRINTED = re.compile(r"^(Exception in thread|Error\b|[\w./-]+: line \d+: |[\w.$]+(Error|Exception)\b|#  ?\S)")
_UNSAFE = re.compile(r"\$\{|[\r\n]")  # what a configuration of log4j cannot hold


class SparkLog:
    """The log files of one Spark, in `folder`.

    Parameters
    ----------
    folder : Path
        Where they are written; created, with the configuration for log4j.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.spark, self.output = folder / "spark.log", folder / "output.log"
        folder.mkdir(parents=True, exist_ok=True)
        text = str(folder)
        if _UNSAFE.search(text):
            raise OSError(f"a folder whose name log4j would read as its own: {text!r}")
        names = {"folder": _escaped(text), "pattern": _escaped(text.replace("%", "%%")), "size": _SIZE}
        self._configuration = folder / "log4j2.properties"
        self._configuration.write_text(_CONFIGURATION.format(**names), encoding="utf-8")
        self.spark.open("a").close()  # what a former Spark did not close stays readable, too
        self._begins: dict[Path, int] = {}
        self.mark()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._trim, daemon=True, name="dspkit-log")
        self._thread.start()

    @property
    def java_option(self) -> str:
        """The option that makes Spark's Java write its log here."""
        return f"-Dlog4j2.configurationFile={self._configuration.as_uri()}"

    def mark(self) -> None:
        """Leave out of `reason` what has been written so far."""
        for path in (self.spark, self.output):
            self._begins[path] = path.stat().st_size if path.exists() else 0

    def reason(self) -> str | None:
        """Return the last reason for a failure that was written since the last mark, or None.

        Tasks that only ended because another one did are left out.
        """
        text = self._read(self.spark)
        begins = [*(match.start() for match in _RECORD.finditer(text)), len(text)]
        records = [text[a:b] for a, b in pairwise(begins)]
        for record in reversed(records):
            if " ERROR " in record[:32] and not _VICTIM.search(record.partition("\n\tat ")[0]):
                return _reason(record)
        return printed_reason(self._read(self.output))

    def advice(self, known: str = "") -> str:
        """Return the advice of an error: the file to look into, and its last reason if that is not known already."""
        reason = self.reason()
        return f"see Spark's own log, {self.spark}" + (
            f", which ends with: {reason}" if reason not in (None, known) else ""
        )

    def close(self) -> None:
        """End the supervision of the sizes; the files stay."""
        self._ended.set()
        self._thread.join(10)

    def _read(self, path: Path) -> str:
        """Return the end of a file since the mark, or of the whole file if it was rotated since."""
        with contextlib.suppress(OSError), path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = self._begins.get(path, 0)
            file.seek(max(begin if begin <= size else 0, size - _TAIL))
            return file.read().decode("utf-8", "replace")
        return ""

    def _trim(self) -> None:
        """Drop the older part of the output when it is too long; writers append to the rest."""
        while not self._ended.wait(_TRIM_S):
            with contextlib.suppress(OSError):
                if self.output.stat().st_size > _SIZE:
                    with self.output.open("r+b") as file:
                        file.seek(-(_SIZE // 4), os.SEEK_END)
                        rest = file.read()
                        file.seek(0)
                        file.truncate()
                    with self.output.open("ab") as file:
                        file.write(b"... older output was dropped\n" + rest.partition(b"\n")[2])
                    self._begins.pop(self.output, None)


def printed_reason(text: str) -> str | None:
    """Return the reason for a failure in what Java or a shell printed, or None.

    Examples
    --------
    >>> printed_reason("WARNING: Using incubator modules\\nError: Could not find or load main class a.B\\n")
    'Error: Could not find or load main class a.B'
    """
    lines = text.splitlines()
    at = [i for i, line in enumerate(lines) if _PRINTED.match(line)]
    if not at:
        return None
    begin = max(i for i in at if not any(j in at for j in (i - 1,)))  # the first line of the last message
    return _reason("\n".join(lines[begin:]))


def open_log(asked: str | None) -> SparkLog:
    """Return the log files for a new Spark: in the folder that was asked for, or in the first that can be written."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    if asked:
        with contextlib.suppress(OSError):
            return SparkLog(Path(asked).absolute())
    if home := os.environ.get("DSPKIT_HOME"):
        with contextlib.suppress(OSError):
            return _session(Path(home).absolute() / "logs", stamp)
    with contextlib.suppress(OSError):
        return _session(_private(Path(tempfile.gettempdir()) / f"dspkit-logs-{os.getuid()}"), stamp)
    return SparkLog(Path(tempfile.mkdtemp(prefix="dspkit-logs-")))


def _session(base: Path, stamp: str) -> SparkLog:
    """Return the log of a new session below a folder, from which the oldest sessions are removed."""
    made = SparkLog(base / f"spark-{stamp}-{os.getpid()}")
    former = sorted(base.glob("spark-*-*"), key=lambda path: path.name)
    for path in former[:-_KEPT]:
        pid = path.name.rpartition("-")[2]
        if pid.isdigit() and not _runs(int(pid)):
            shutil.rmtree(path, ignore_errors=True)
    return made


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _private(folder: Path) -> Path:
    """Return a folder that only this user can use; anybody may have made one of that name in a shared place."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not private")
    return folder


def _escaped(text: str) -> str:
    """Return a text as the value of a Java property, which is Latin-1 with escapes for the rest."""
    return "".join(c if " " <= c <= "~" and c != "\\" else "".join(_units(c)) for c in text)


def _units(character: str) -> Iterator[str]:
    for unit in struct.iter_unpack(">H", character.encode("utf-16-be", "surrogatepass")):
        yield f"\\u{unit[0]:04x}"


def _reason(text: str) -> str:
    text = _RECORD.sub("", text.strip(), count=1)
    said = python_error(text)[0] if "Traceback (most recent call last)" in text else java_error(text)
    return f"{said:.500}"


class QuietJava(logging.Filter):
    """A filter of py4j's report that Java does not answer: the error that follows says it in a sentence."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.msg == "Exception while sending command." and "py4j" in record.pathname)
