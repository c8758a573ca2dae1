"""Files are written whole or not at all, with the rights that the user's umask leaves."""

import os
import threading

import pytest

from dspkit import files
from dspkit.errors import FileError


def _fill(path):
    path.write_text("new")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_in_the_way_is_named(tmp_path, overwrite):
    with pytest.raises(FileError, match="which is a folder"):
        files.write(tmp_path, _fill, overwrite=overwrite)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="expected a folder to write in"):
        files.write(tmp_path / "file" / "run.parquet", _fill)


def test_a_name_as_long_as_the_system_takes_is_written(tmp_path):
    assert files.write(tmp_path / ("n" * 255), _fill).read_text() == "new"
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_umask_is_kept_to_and_never_touched(tmp_path, monkeypatch, mask, mode):
    before = os.umask(mask)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", lambda _: pytest.fail("other threads would write with it"))
            path = files.write(tmp_path / "run", _fill)
        assert path.stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)


def test_writers_of_one_name_do_not_meet(tmp_path):
    """Each writes in its own file, and the last to rename wins."""
    both = threading.Barrier(2, timeout=10)

    def fill(path):
        both.wait()
        path.write_text("whole " * 1000)
        both.wait()

    threads = [
        threading.Thread(target=files.write, args=(tmp_path / "run", fill), kwargs={"overwrite": True})
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(tmp_path) == ["run"]
    assert (tmp_path / "run").read_text() == "whole " * 1000
