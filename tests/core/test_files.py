"""Files are written whole and durably or not at all, with the rights that the user's umask leaves."""

import contextlib
import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import threading

import pytest

from dspkit import History, Topology, bo, report, workload
from dspkit.core import DspkitError, FileError, files
from dspkit.loaders import Prometheus, SparkEventLog, SparkProgress, Table
from dspkit.profiling import load_profile


def _fill(path):
    path.write_text("new")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_in_the_way_is_named(tmp_path, overwrite):
    with pytest.raises(FileError, match="which is a folder"):
        files.write_atomically(tmp_path, _fill, overwrite=overwrite)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="expected a folder to write in"):
        files.write_atomically(tmp_path / "file" / "run.parquet", _fill)


def test_a_name_as_long_as_the_system_takes_is_written(tmp_path):
    assert files.write_atomically(tmp_path / ("n" * 255), _fill).read_text() == "new"
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_umask_is_kept_to_and_never_touched(tmp_path, monkeypatch, mask, mode):
    before = os.umask(mask)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", lambda _: pytest.fail("other threads would write with it"))
            path = files.write_atomically(tmp_path / "run", _fill)
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
        threading.Thread(target=files.write_atomically, args=(tmp_path / "run", fill), kwargs={"overwrite": True})
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(tmp_path) == ["run"]
    assert (tmp_path / "run").read_text() == "whole " * 1000


def test_one_of_several_writers_of_a_new_name_is_told_that_it_saved(tmp_path):
    """All of them have filled their files before the first one names its own."""
    for i in range(30):
        path, here, results = tmp_path / f"run{i}", threading.Barrier(4, timeout=60), []

        def save(text, path=path, here=here, results=results):
            def fill(partial):
                partial.write_text(text)
                here.wait()

            try:
                files.write_atomically(path, fill)
                results.append(text)
            except FileError:
                pass

        threads = [threading.Thread(target=save, args=(f"writer {n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [path.read_text()]
    assert sorted(os.listdir(tmp_path)) == sorted(f"run{i}" for i in range(30))


def test_where_there_are_no_links_one_of_several_writers_saves_too(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    test_one_of_several_writers_of_a_new_name_is_told_that_it_saved(tmp_path)
    with pytest.raises(FileExistsError) as caught:
        files.write_atomically(tmp_path / "run0", _fill)
    assert isinstance(caught.value, FileError)


def test_a_link_that_leads_nowhere_is_in_the_way(tmp_path):
    (tmp_path / "run").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileError, match="which exists"):
        files.write_atomically(tmp_path / "run", _fill)

    def late(path):  # it comes while the contents are being written
        (tmp_path / "new").symlink_to(tmp_path / "nowhere")
        _fill(path)

    with pytest.raises(FileError, match="which exists"):
        files.write_atomically(tmp_path / "new", late)
    assert (tmp_path / "new").is_symlink()
    assert not (tmp_path / "nowhere").exists()
    assert files.write_atomically(tmp_path / "run", _fill, overwrite=True).read_text() == "new"
    assert not (tmp_path / "run").is_symlink()


@pytest.mark.parametrize("overwrite", [False, True])
def test_contents_are_on_the_disk_before_the_name_and_the_name_before_the_return(tmp_path, monkeypatch, overwrite):
    calls, sync = [], os.fsync

    def synced(handle):
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else f"{os.fstat(handle).st_size} bytes")
        sync(handle)

    def recorded(name, function):
        return lambda *args, **options: (calls.append(name), function(*args, **options))[1]

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", recorded("named", os.link))
    monkeypatch.setattr(os, "replace", recorded("named", os.replace))
    files.write_atomically(tmp_path / "made" / "run", _fill, overwrite=overwrite)
    assert calls == ["folder", "3 bytes", "named", "folder"]  # the first is the one in which a folder was made


_FORKS = """
import os, resource, signal, sys
from pathlib import Path
from dspkit import History, Topology, bo, report
from dspkit.comparison.result_cache import KEYS, ResultCache
import pyarrow.parquet, pandas

def rows(folder):
    cache = ResultCache(folder / "new")
    cache.add("a", {**dict.fromkeys(KEYS, "x"), "seed": 1, "error": ""})
    cache.save()

long = {"x": "".join(map(chr, range(1000, 9000)))}
saves = {
    "history": lambda folder: History(Topology.chain("a", "b"), about=long).save(folder / "run.parquet"),
    "run": lambda folder: History(Topology.chain("a", "b")).save(),
    "report": lambda folder: report.write([report.Section("Load", "It rises.")], title="Mine"),
    "library": lambda folder: bo.Library(tuple(f"a{i}" for i in range(900))).save(folder / "run.json"),
    "rows": rows,
}
sync = os.fsync

def at_fsync(left):
    def fsync(handle):
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(handle)

    os.fsync = fsync

for kind, save in saves.items():
    for case in map(int, sys.argv[2:]):
        folder = Path(sys.argv[1], kind, str(case))
        folder.mkdir(parents=True)
        sys.stdout.flush()
        if not (child := os.fork()):
            os.environ["DSPKIT_HOME"] = str(folder)
            if case:
                at_fsync(case)
            else:
                resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            try:
                save(folder)
            except Exception as error:
                (folder / "error").write_text(f"{type(error).__name__}: {error}")
            os._exit(0)
        print(kind, case, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def _saved(folder, *cases):
    """Return how each kind of file is saved in a process of its own, by kind and case, with the files it left.

    In case n the process is killed when it waits for the disk for the n-th time; in case 0 no file may exceed 1,000
    bytes.
    """
    command = [sys.executable, "-c", _FORKS, folder, *map(str, cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ends = [line.split() for line in done.stdout.splitlines()]
    assert len(ends) == 5 * len(cases)
    return {
        (kind, int(case)): (int(end), [p for p in (folder / kind / case).rglob("*") if p.is_file()])
        for kind, case, end in ends
    }


def _whole(path):
    begin, end = {".parquet": (b"PAR1", b"PAR1"), ".html": (b"<!DOCTYPE html>", b"</html>\n"), ".json": (b"{", b"}\n")}[
        path.suffix
    ]
    data = path.read_bytes()
    return data.startswith(begin) and data.endswith(end)


def test_a_kill_while_saving_leaves_a_whole_file_or_none(tmp_path):
    """At each point at which the disk is waited for: before the file has its name, and after it."""
    found = _saved(tmp_path, 1, 2, 3, 4)
    partial = 0
    for kind in ("history", "run", "report", "library", "rows"):
        seen = []
        for case in (1, 2, 3, 4):
            end, left = found[kind, case]
            named = [path for path in left if not path.name.startswith(".dspkit-partial-")]
            partial += len(left) - len(named)
            assert all(map(_whole, named))
            seen.append((end, len(named)))
            for folder in {path.parent for path in left}:
                files.write_atomically(folder / "next", _fill)
                assert not list(folder.glob(".dspkit-*"))
        assert (-signal.SIGKILL, 0) in seen
        assert (-signal.SIGKILL, 1) in seen
        assert seen[-1] == (0, 1)
    assert partial >= 10


def test_a_file_that_does_not_fit_is_named_with_the_remedy(tmp_path):
    for (kind, _), (end, left) in _saved(tmp_path, 0).items():
        assert [path.name for path in left] == ["error"], kind  # nothing else stays
        said = left[0].read_text()
        assert said.startswith(f"FileError: got {tmp_path}/{kind}/0/"), said
        assert "File too large; expected a file that can be written; raise the limit of file sizes (ulimit -f)" in said
        assert end == 0


def test_files_of_living_writers_and_of_others_stay(tmp_path):
    code = """
import sys, time
from pathlib import Path
from dspkit.core import files
def fill(path):
    path.write_text("half a fi")
    print("filling", flush=True)
    sys.stdin.read()
    path.write_text("whole")
files.write_atomically(Path(sys.argv[1], "slow"), fill)
"""
    others = [".dspkit-mine", ".dspkit-partial-0", "notes.txt", ".dspkit-partial-0123456789abcdef"]
    for name in others[:-1]:
        (tmp_path / name).write_text("keep")
    os.mkfifo(tmp_path / others[-1])  # opening it would wait for ever
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], **pipes) as writer:
        assert writer.stdout.readline() == "filling\n"
        files.write_atomically(tmp_path / "fast", _fill)
        writer.communicate("")
    assert writer.returncode == 0
    assert (tmp_path / "slow").read_text() == "whole"
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "fast", "slow"])


def test_a_file_taken_for_stale_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    lock, made = files._lock, []

    def late(handle):
        if not made:
            made.append(handle)
            files.remove_stale(tmp_path)  # by another process, just before we lock
        return lock(handle)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_lock", late)
        assert files.write_atomically(tmp_path / "run", _fill).read_text() == "new"
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "free space on its disk"), (errno.EDQUOT, "quota"), (errno.EIO, "choose another folder")],
)
@pytest.mark.parametrize("where", ["fill", "fsync", "open", "mkdir"])
def test_a_disk_that_is_full_is_said_to_be_so(tmp_path, monkeypatch, number, remedy, where):
    def full(*_, **__):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        if where != "fill":
            patch.setattr(os, where, full)
        with pytest.raises(FileError) as caught:
            files.write_atomically(tmp_path / "new" / "run", full if where == "fill" else _fill)
    assert f"{tmp_path}/new/run: {os.strerror(number)}" in caught.value.got
    assert remedy in caught.value.fix
    assert not (tmp_path / "new" / "run").exists()
    assert not list(tmp_path.rglob(".dspkit-*"))


def test_dev_full_is_full(tmp_path):
    def fill(path):
        with open("/dev/full", "w") as file:
            file.write("x" * 100_000)

    with pytest.raises(FileError, match=r"No space left on device; expected .*; free space"):
        files.write_atomically(tmp_path / "run", fill)


_NO_PATHS = [None, 3, b"run", "", "a\0b", "half \ud800", "n" * 300, "d/" * 3000 + "run", ["run"]]


@pytest.mark.parametrize("path", _NO_PATHS, ids=lambda path: ascii(path)[:20])
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_cannot_be_a_path_is_refused_in_words(tmp_path, monkeypatch, path, overwrite):
    monkeypatch.chdir(tmp_path)
    history = History(Topology.chain("a", "b"))
    writers = [
        lambda: files.write_atomically(path, _fill, overwrite=overwrite),
        lambda: report.write([report.Section("Load", "It rises.")], path, title="Mine", overwrite=overwrite),
        lambda: history.save(path, overwrite=overwrite),
    ]
    for write in writers[: 1 if path is None else None]:  # None is the default of the others
        with pytest.raises(FileError) as caught:
            write()
        str(caught.value).encode()
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


@pytest.mark.parametrize("path", _NO_PATHS, ids=lambda path: ascii(path)[:20])
def test_what_cannot_be_a_path_is_not_read_either(path):
    readers = [History.load, bo.Library.load, load_profile, report.from_notebook]
    readers += [workload.Trace.load, lambda p: Table(p, topology=["a"]).history()]
    for read in readers:
        with pytest.raises(DspkitError) as caught:
            read(path)
        str(caught.value).encode()


@pytest.fixture
def _watchdog():
    def hangs(*_):
        raise RuntimeError("no end within 20 s")

    before = signal.signal(signal.SIGALRM, hangs)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_watchdog")
@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "folder"])
def test_only_regular_files_are_read(tmp_path, kind):
    """Reading from a pipe would wait for ever: the alarm ends it."""
    for suffix, read in {
        ".parquet": [History.load, workload.Trace.load, lambda p: Table(p, topology=["a"]).history()],
        ".csv": [workload.Trace.load, lambda p: Table(p, topology=["a"]).history()],
        ".json": [bo.Library.load, load_profile, lambda p: Prometheus(p, topology=["a"]).history()],
        ".ipynb": [report.from_notebook],
        ".log": [lambda p: SparkEventLog(p).history()],
        ".jsonl": [lambda p: SparkProgress(p).history()],
    }.items():
        path = tmp_path / f"file{suffix}"
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        elif kind == "folder":
            if suffix == ".log":
                continue  # a folder of logs is read
            path.mkdir()
        else:
            with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(tmp_path):
                made.bind(path.name)  # a whole path may be longer than a socket's name can be
        for one in read:
            signal.alarm(20)
            with pytest.raises(DspkitError):
                one(path)
