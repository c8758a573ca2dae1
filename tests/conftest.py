"""What all tests share: a real browser, a home for what runs leave, and a list of what was skipped at the end."""

from __future__ import annotations

import doctest
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

import live

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RECORDED = Path(__file__).resolve().parents[2] / "shared" / "recorded"  # of others; not part of this repository
REQUIRE_ALL = "DSPKIT_REQUIRE_ALL"  # set in CI: what is skipped there counts as failed
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_ARGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run"
    " --disable-background-networking --disable-component-update --disable-sync"
).split()

# A deadline per example measures the machine, not the code. In CI the examples are the same each time: new ones are
# for people to meet, who can do something about them.
hypothesis.settings.register_profile("dspkit", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("dspkit")


@pytest.fixture(autouse=True, scope="session")
def _home_of_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs and reports that tests write never mix with the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSPKIT_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Examples that are only shown are no tests. Live jobs of one kind come together: Java starts once for each."""
    left_out = [item for item in items if _only_shown(item) or (_reads_recordings(item) and not RECORDED.exists())]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    kinds = ("microbatch]", "plain]")

    def kind(item: pytest.Item) -> int:
        if item.path.name == "test_cluster.py":
            return len(kinds) + 1
        return next((i for i, end in enumerate(kinds, 1) if end in item.name), 0)

    items.sort(key=kind)


def pytest_report_header() -> str:
    return f"recordings of others: {RECORDED if RECORDED.exists() else 'not here, tests that read them are left out'}"


def _reads_recordings(item: pytest.Item) -> bool:
    return item.get_closest_marker("recorded") is not None


def _only_shown(item: pytest.Item) -> bool:
    """A docstring with `+SKIP` at each line: it needs a Prometheus, a Flink, an hour; others test what it shows."""
    return isinstance(item, pytest.DoctestItem) and all(
        example.options.get(doctest.SKIP, False) for example in item.dtest.examples
    )


@pytest.fixture(autouse=True, scope="session")
def _end_of_spark() -> Iterator[None]:
    """What the live tests started ends with them."""
    yield
    live.end()


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium on this machine; without one the test is skipped."""
    for name in CHROMIUM_NAMES:
        if path := shutil.which(name):
            return path
    pytest.skip(f"no {', '.join(CHROMIUM_NAMES)} on PATH; to have it: apt-get install -y chromium")


@pytest.fixture(scope="module")
def browser(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium. One a module, no longer: while it lives, this thread has a running event loop."""
    from playwright.sync_api import sync_playwright

    home = str(tmp_path_factory.mktemp("chromium"))  # it writes to HOME and the XDG folders
    places = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"), home)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, headless=True, args=CHROMIUM_ARGS, env={**os.environ, **places}
        )
        yield browser
        browser.close()


@pytest.fixture
def page_errors() -> list[str]:
    """What went wrong in `page` or `offline_page`: script errors, console errors, requests that failed."""
    return []


@pytest.fixture
def page(browser: Browser, page_errors: list[str]) -> Iterator[Page]:
    """A fresh browser page, wide enough for a notebook."""
    yield from _page(browser, page_errors, offline=False)


@pytest.fixture
def offline_page(browser: Browser, page_errors: list[str]) -> Iterator[Page]:
    """A fresh browser page without a network, for files that must stand alone."""
    yield from _page(browser, page_errors, offline=True)


def _page(browser: Browser, errors: list[str], *, offline: bool) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1300, "height": 1100}, offline=offline)
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(f"script: {error}"))

    def said(message):
        # On a busy machine JupyterLab draws a saved view before the kernel has sent its widgets, and again afterwards.
        if message.type == "error" and "widget model not found" not in message.text:
            errors.append(f"console: {message.text}")

    page.on("console", said)

    def failed(request):
        # JupyterLab shows a picture of a notebook twice: first by its bare name, which it takes back at once.
        if not (request.failure == "net::ERR_ABORTED" and "/lab/tree/notebooks/images/" in request.url):
            errors.append(f"request: {request.url[:200]} {request.failure}")

    page.on("requestfailed", failed)
    yield page
    context.close()


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A real Redis of our own, in memory."""
    path = shutil.which("redis-server")
    if path is None:
        pytest.skip("no redis-server on PATH; to have it: apt-get install -y redis-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [path, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    import redis

    with redis.Redis(port=port) as client:
        for _ in range(100):
            try:
                client.ping()
                break
            except redis.ConnectionError:
                time.sleep(0.05)
    yield f"redis://127.0.0.1:{port}/0"
    server.terminate()
    server.wait(10)


@pytest.fixture
def stream(redis_url: str) -> Iterator[Any]:
    import redis

    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
        yield client


@pytest.fixture(scope="session")
def broker() -> Iterator[tuple[str, Any]]:
    """librdkafka's own broker, which lives as long as the producer that holds it."""
    from confluent_kafka import Producer

    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 2})
    (one,) = producer.list_topics(timeout=10).brokers.values()
    yield f"{one.host}:{one.port}", producer
    producer.flush(10)


def _skipped(config: pytest.Config) -> list[pytest.TestReport]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter.stats.get("skipped", []) if reporter else []


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if os.environ.get(REQUIRE_ALL) and exitstatus == pytest.ExitCode.OK and _skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reasons: dict[str, list[str]] = {}
    for report in _skipped(config):
        longrepr = report.longrepr
        reason = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
        reasons.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid or str(Path(longrepr[0]).name))
    if not reasons:
        return
    terminalreporter.section("skipped")
    for reason, tests in reasons.items():
        terminalreporter.line(f"{len(tests)} x {reason}")
        for test in tests[:5]:
            terminalreporter.line(f"    {test}")
        if len(tests) > 5:
            terminalreporter.line(f"    ... and {len(tests) - 5} more")
    if os.environ.get(REQUIRE_ALL):
        terminalreporter.line(f"{REQUIRE_ALL} is set: each of these counts as failed.", red=True)
