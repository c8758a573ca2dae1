"""Live jobs listen on the loopback address only, and a peer without the secret can neither read them nor end them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import live
from dspkit.spark import SparkCluster
from dspkit.spark.runtime import java, session
from dspkit.spark.runtime.workers import warm
from sockets import Bound, Sockets, Watch, family
from tiny import listens, wait_for

ROOT = Path(__file__).resolve().parents[2]
CORES = 8
ONE_WAY, RPC = 9, 3  # kinds of messages of Spark's transport
CREDIT, ACKNOWLEDGED = 2, 4  # and of its streaming shuffle


def frame(kind: int, head: bytes, body: bytes) -> bytes:
    content = bytes([kind]) + head + struct.pack(">i", len(body)) + body
    return struct.pack(">q", len(content) + 8) + content


def login(token: bytes) -> bytes:
    """A message of Spark's login, for the name that its applications have."""
    words = (b"sparkSaslUser", token)
    return frame(RPC, struct.pack(">q", 1), b"\xea" + b"".join(struct.pack(">i", len(w)) + w for w in words))


HOSTILE = {
    "a frame of a terabyte": struct.pack(">q", 1 << 40) + bytes(64),
    "a frame of no bytes": struct.pack(">q", 8) + bytes(64),
    "a frame of two gigabytes, as it comes": struct.pack(">q", (1 << 31) - 9) + bytes(1 << 17),
    "a reader": frame(ONE_WAY, b"", struct.pack(">iqiii", CREDIT, 0, 0, 0, 1)),
    "the end of a reader": frame(ONE_WAY, b"", struct.pack(">iqii", ACKNOWLEDGED, 7, 0, 0)),
    "a reader that asks": frame(RPC, struct.pack(">q", 1), struct.pack(">iqiii", CREDIT, 0, 0, 0, 1)),
    "a chunk": struct.pack(">q", 21) + bytes([0]) + bytes(12),
    "an unknown kind": struct.pack(">q", 21) + bytes([77]) + bytes(12),
    "a wrong login": login(b"") + login(b'username="x",response=0'),
}  # fmt: skip


def answer(port: int, payload: bytes, patience_s: float = 20.0) -> tuple[bytes, bool]:
    """Return the words of a server, and whether it then closes the connection."""
    said = b""
    with socket.socket() as peer:
        peer.settimeout(patience_s)
        try:
            peer.connect(("127.0.0.1", port))
            peer.sendall(payload)
            while more := peer.recv(1 << 16):
                said += more
        except TimeoutError:
            return said, False
        except ConnectionError:
            pass
    return said, True


def servers(sockets: Sockets) -> set[Bound]:
    return {found for found in sockets.read() if found.kind.startswith("tcp")}


def new_servers(sockets: Sockets, known: set[Bound], count: int) -> set[Bound]:
    """Wait until there are as many that were not known before."""
    wait_for(lambda: len(servers(sockets) - known) == count)
    return servers(sockets) - known


@contextlib.contextmanager
def started(where: str) -> Iterator[Any]:
    """A Spark in real-time mode of its own: in this process, or on a cluster."""
    live.end()
    with contextlib.ExitStack() as stack:
        if where == "cluster":
            cluster = stack.enter_context(SparkCluster.local(1, CORES, memory="512m"))
            spark = cluster.start("realtime")
            wait_for(lambda: cluster.executors(spark.sparkContext.applicationId))
            warm(spark)
        else:
            spark = session.start_session(f"local[{CORES}]", where)
            stack.callback(session.stop, spark)
        yield spark


def wait_until_it_works(job: Any) -> None:
    end = time.monotonic() + 120
    while not job.observe().throughput > 0:
        assert time.monotonic() < end, "no record in two minutes"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("where", ["realtime", "cluster"])
def test_hostile_peers_lose_their_own_connection_and_the_job_loses_nothing(where: str, tmp_path: Path) -> None:
    """All kinds at each server of the streaming shuffle, before and after rescales, and 72 bytes at every other."""
    sockets = Sockets()
    with started(where) as spark, ThreadPoolExecutor(16) as pool:
        others = servers(sockets)
        master = {"master": spark.sparkContext.master, "spark": spark}
        with live.job(1000, 50, checkpoint=tmp_path, epoch_s=60.0, restarts=0, **master) as job:
            seen: set[Bound] = set()
            for work in (2, 3, 1):
                job.deploy(job.deployment.scaled({"work": work}))
                wait_until_it_works(job)
                shuffle = new_servers(sockets, others | seen, 1 + work)  # one of each sending task
                seen |= shuffle
                attacks = [(to, what) for to in shuffle for what in HOSTILE]
                for (to, what), (said, closed) in zip(
                    attacks, pool.map(lambda one: answer(one[0].port, HOSTILE[one[1]]), attacks), strict=True
                ):
                    assert closed, (what, to)
                    assert bool(said) == (what == "a wrong login"), (what, said)  # it is asked to prove what it knows
                others = servers(sockets) - shuffle
                list(pool.map(lambda to: answer(to.port, HOSTILE["a frame of a terabyte"], 1.0), others))
                wait_until_it_works(job)
                assert servers(sockets) >= shuffle, "an epoch has ended"
            assert job.restarts == 0
    assert live.each_once(tmp_path) > 1000


@pytest.mark.spark
def test_local_spark_answers_nobody_without_its_secret() -> None:
    """The driver's RPC and block manager refuse a peer that has not logged in."""
    live.end()
    sockets = Sockets()
    with started("realtime") as spark:
        assert spark.sparkContext.getConf().get("spark.authenticate") == "true"
        asked = HOSTILE["a reader that asks"]
        answers = [answer(to.port, asked, 2.0)[0] for to in servers(sockets) if "java" in to.command]
        assert sum(b"Sasl" in said for said in answers) == 2, answers  # the third is Py4J's, with a secret of its own


def command_lines() -> set[bytes]:
    """The command lines of this process's descendants, as every user of the machine can read them."""
    found = set()
    for pid in family():
        with contextlib.suppress(OSError):
            found.add(Path(f"/proc/{pid}/cmdline").read_bytes())
    return found


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc: tested on Linux")
@pytest.mark.parametrize("where", ["local", pytest.param("cluster", marks=pytest.mark.slow)])
def test_a_secret_of_the_users_own_is_on_no_command_line(where: str) -> None:
    """From the first process to the end of a job; Java has it all the same, and a master of others asks for it."""
    live.end()
    with contextlib.ExitStack() as stack:
        secret, master = "b6c2 of my own", "local[4]"
        if where == "cluster":
            cluster = stack.enter_context(SparkCluster.local(1, CORES, memory="512m"))
            secret, master = cluster._secret, cluster.url  # as one that another process has started
        mine = {"spark.authenticate": "true", "spark.authenticate.secret": secret}
        here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        here |= {"spark.executor.memory": "512m"}
        seen, ended = set[bytes](), threading.Event()

        def watch() -> None:
            while not ended.wait(0.05):
                seen.update(command_lines())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            spark = session.start_session(master, "microbatch", mine | here)
            stack.callback(session.stop, spark)
            assert spark.sparkContext.parallelize(range(10), 2).sum() == 45
        finally:
            ended.set()
            watcher.join()
        assert sum(b"spark.authenticate.secret=" in line for line in seen) >= 1  # Spark wants to see the setting
        assert not [line for line in seen if secret.encode() in line]
        assert spark.sparkContext._jvm.java.lang.System.getenv("_SPARK_AUTH_SECRET") == secret
        assert secret not in os.environ.values()


@pytest.mark.spark
@pytest.mark.slow
def test_pages_of_master_and_worker_are_refused() -> None:
    sockets, refused = Sockets(), 0
    with SparkCluster.local(1, 1, memory="256m"):
        for to in servers(sockets):
            for page in ("", "json/", "metrics/json/", "app/?appId=x", "logPage/?appId=x&executorId=0&logType=stderr"):
                if (status := page_status(f"http://127.0.0.1:{to.port}/{page}")) is not None:
                    assert status == 403, (to, page)
                    refused += 1
    assert refused == 2 * 5


def page_status(url: str) -> int | None:
    """The status of a page; None where no web server answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as page:
            return int(page.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, ValueError):
        return None


@pytest.mark.slow
def test_a_socket_that_a_descendant_binds_for_a_moment_is_seen() -> None:
    code = "import socket, time; s = socket.socket({}); s.bind(({!r}, 0)); {}; time.sleep(1)"
    cases = [
        (code.format("type=socket.SOCK_DGRAM", "", "0"), False),
        (code.format("", "0.0.0.0", "s.listen()"), False),
        (code.format("socket.AF_INET6", "::", "s.listen()"), False),
        (code.format("", "127.0.0.1", "s.listen()"), True),
        ("import socket, time; s = socket.socket(type=2); s.connect(('127.0.0.1', 9)); time.sleep(1)", True),
        ("import socket, time; s = socket.socket(type=2); s.sendto(b'', ('127.0.0.1', 9)); time.sleep(1)", False),
    ]
    others = family()  # what other tests have started has sockets too
    for text, loopback in cases:
        with Watch() as watch:
            subprocess.run(["sh", "-c", f'"{sys.executable}" -c "{text}"; true'], check=True)
        assert any(bound.pid not in others for bound in watch.beyond) != loopback, text
        assert any(bound.pid not in others for bound in watch.within) == loopback, text


KINDS_OF_SPARK = ("realtime", "microbatch", "cluster")


def watched(where: str) -> tuple[Watch, int]:
    """Watch a job from the first moment to the end; return also how many sockets there were before it began.

    Servers of the shuffle come with each epoch and rescale, and go.
    """
    live.end()
    mode = "microbatch" if where == "microbatch" else "realtime"
    with Watch() as watch, started(where) as spark:
        base = len(watch.within)
        with live.job(500, 50, mode=mode, spark=spark, master=spark.sparkContext.master, epoch_s=1.0) as job:
            for work in (1, 3):
                job.deploy(job.deployment.scaled({"work": work}))
                wait_until_it_works(job)
    return watch, base


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("where", KINDS_OF_SPARK)
def test_nothing_of_a_job_is_bound_beyond_the_loopback_address(where: str) -> None:
    watch, base = watched(where)
    assert base >= (6 if where == "cluster" else 2)
    assert not watch.beyond
    assert watch.looks > 20
    if where != "microbatch":
        assert len(watch.within) > base + 4  # the shuffle's servers among them


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def made(name: str, arguments: list[str], home: Path) -> Iterator[subprocess.Popen[str]]:
    """`make NAME` in this environment, which is set up."""
    code = "import sys; sys.path[:0] = ['.ci', '.']; import dev, environment; "
    code += "environment.Environment.ensure = lambda self: None; "
    code += f"sys.argv[0] = 'dev.py'; dev.main({name!r}, {arguments!r})"
    env = {**os.environ, "DSPKIT_HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=env, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            killer = threading.Timer(60, os.killpg, (process.pid, signal.SIGKILL))  # of one that does not end
            killer.start()
            process.stdout.read()
            killer.cancel()
            process.wait(60)


def address(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Address and token that a server prints."""
    said = []
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        if found := re.search(r"(http://127\.0\.0\.1:\d+)/\S*token=(\w+)", line):
            threading.Thread(target=_drain, args=(process.stdout,), daemon=True).start()
            wait_for(lambda: listens(found[1]))
            return found[1], found[2]
    raise AssertionError("no address:\n" + "".join(said))


def _drain(output: Any) -> None:
    with contextlib.suppress(ValueError):  # closed
        for _ in output:
            pass


@pytest.mark.slow
def test_nothing_of_make_lab_is_bound_beyond_the_loopback_address(tmp_path: Path) -> None:
    with Watch() as watch, made("lab", ["--no-browser", "--port=0"], tmp_path) as process:
        base, token = address(process)
        login = {"Authorization": f"token {token}"}
        start = urllib.request.Request(f"{base}/api/kernels", data=b"{}", headers=login, method="POST")
        with urllib.request.urlopen(start, timeout=60) as answer:
            assert answer.status == 201
        wait_for(lambda: sum("ipykernel" in found.command for found in set(watch.within)) >= 4)
    assert not watch.beyond


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("voila") is None, reason="no Voilà; to have it: make setup")
def test_nothing_of_make_app_is_bound_beyond_the_loopback_address(tmp_path: Path) -> None:
    with Watch() as watch, made("app", ["--no-browser", f"--port={free_port()}"], tmp_path) as process:
        base, token = address(process)
        with urllib.request.urlopen(f"{base}/voila/render/00_start.ipynb?token={token}", timeout=180) as page:
            assert "Start here" in page.read().decode()
        assert sum("ipykernel" in found.command for found in watch.within) >= 4
    assert not watch.beyond


@pytest.mark.spark
@pytest.mark.slow
def test_nothing_of_make_demo_is_bound_beyond_the_loopback_address(tmp_path: Path) -> None:
    with Watch() as watch, made("demo", ["--seconds", "20"], tmp_path) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        assert process.wait(60) == 0, said
    assert "each once" in said
    assert sum("java" in found.command for found in watch.within) > 6
    assert not watch.beyond


STAND_IN = """
package org.apache.spark.shuffle.streaming;
public abstract class StreamingShuffleWriter extends org.apache.spark.shuffle.ShuffleWriter<Object, Object> {
  void start(org.apache.spark.network.util.TransportConf conf, org.apache.spark.network.server.RpcHandler handler) {
    new org.apache.spark.network.TransportContext(conf, handler).createServer(7337, new java.util.ArrayList<>());
  }
}
"""
PROBE = """
public class Probe {
  public static void main(String[] words) throws Exception {
    new dspkit.Exchange();
    System.out.println("it fits");
  }
}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="no javac; to have it: apt-get install -y openjdk-17-jdk")
def test_a_spark_whose_streaming_shuffle_is_made_otherwise_is_refused_by_name(tmp_path: Path) -> None:
    import pyspark

    path = [str(java.JAR), str(Path(pyspark.__file__).parent / "jars" / "*")]
    ways = {"as it is": [], "as it might become": [STAND_IN]}
    said = {}
    for name, more in ways.items():
        folder = tmp_path / name
        folder.mkdir()
        for text in (PROBE, *more):
            file = folder / (re.search(r"class (\w+)", text)[1] + ".java")  # type: ignore[index]
            file.write_text(text)
            subprocess.run(["javac", "-cp", os.pathsep.join(path), "-d", folder, file], check=True)
        command = ["java", "-cp", os.pathsep.join([str(folder), *path]), "Probe"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        said[name] = ran.stdout + ran.stderr
    assert "it fits" in said["as it is"], said
    wrong = said["as it might become"]
    assert "StreamingShuffleWriter of Spark 4.3" in wrong, wrong
    assert "createServer(ILjava/util/List;)" in wrong.partition("expected")[0], wrong
    assert "createServer()" in wrong.partition("expected")[2], wrong


if __name__ == "__main__":  # print which sockets are bound beyond the loopback address, and how many are not
    found = [watched(where)[0] for where in KINDS_OF_SPARK]
    live.end()
    beyond = sorted({str(bound) for watch in found for bound in watch.beyond})
    print(json.dumps({"beyond": beyond, "within": sum(len(watch.within) for watch in found)}))
