"""Our small jar: its location, its compatibility with the installed Spark, and its build from `jvm/*.java`.

It must be compiled against the Spark it runs in (it works on Catalyst's plans), so it fits one feature release. `python
-m dspkit.spark.runtime.jar` builds it; a test compares it with its sources.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ...core import NotFoundError
from ...core.files import write_atomically

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


if __name__ == "__main__":
    print(f"{build()}: {JAR.stat().st_size} bytes", file=sys.stderr)
