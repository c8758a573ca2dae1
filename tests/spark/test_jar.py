"""The committed jar is what its sources make."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dspkit.core import NotFoundError
from dspkit.spark.runtime import java as jar


def test_the_jar_was_made_from_these_sources() -> None:
    files = jar.contents(jar.JAR)
    assert files["META-INF/dspkit-sources.sha256"].decode() == jar.sources_digest()
    assert files["META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"] == b"dspkit.TraceSource\n"


def test_the_jar_fits_the_spark_that_we_pin() -> None:
    assert jar.unusable() is None


def test_a_spark_that_the_jar_does_not_fit_is_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import pyspark

    monkeypatch.setattr(pyspark, "__version__", "4.2.1")
    assert "4.2.1" in (jar.unusable() or "")
    monkeypatch.setattr(jar, "JAR", tmp_path / "nothing.jar")
    assert "not in this installation" in (jar.unusable() or "")


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFoundError, match="openjdk-17-jdk"):
        jar.build(tmp_path / "made.jar")


def _major() -> int:
    """The major version of the compiler on PATH; 0 if there is none."""
    if not shutil.which("javac"):
        return 0
    told = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=True).stdout
    return int(told.split()[1].split(".")[0])


@pytest.mark.skipif(_major() < 17, reason="no javac of 17 or newer; to have it: apt-get install -y openjdk-17-jdk")
def test_a_rebuilt_jar_has_the_same_classes(tmp_path: Path) -> None:
    ours, made = jar.contents(jar.JAR), jar.contents(jar.build(tmp_path / "made.jar"))
    assert made.keys() == ours.keys()
    if _major() == 17:  # another compiler may write the same program in other bytes
        assert made == ours
