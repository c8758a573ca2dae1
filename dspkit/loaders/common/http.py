"""HTTP requests by urllib, with limits on size and time, and without redirects to other servers."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from .base import Limits, LoaderError
from .files import parse_json
from .units import Unusable

_REDIRECTS = 3
_CHUNK = 1 << 16
_HERE = ("localhost", "127.0.0.1", "::1")


def is_url(source: object) -> bool:
    return isinstance(source, str) and source.lower().startswith(("http://", "https://"))


def _shown(url: object) -> object:
    """Return an address without what may be a password: before the last @, and behind the first ?."""
    if not isinstance(url, str):
        return url
    address, asked, _ = re.sub(r"//.*@", "//***@", url, flags=re.DOTALL).partition("?")
    return address + "?***" * bool(asked)


class Server:
    """One server; all its answers together have a deadline."""

    def __init__(self, url: str, limits: Limits, headers: Mapping[str, str] | None = None):
        try:
            parts = urllib.parse.urlsplit(url)
            good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not parts.query
        except (ValueError, TypeError, AttributeError):
            good = False
        if not good or "@" in parts.netloc or any(c <= " " or c > "~" for c in url):
            raise LoaderError(
                f"url {_shown(url)!r:.200}",
                expected="http://host:port, without a password in it",
                fix="write the address in full; pass headers={'Authorization': ...} to log in",
            )
        self.url, self._limits, self._headers = url.rstrip("/"), limits, dict(headers or {})
        self._until = time.monotonic() + limits.deadline_s
        handlers: list[Any] = [_Near(parts), _Watched(), _WatchedSecure()]
        if parts.hostname in _HERE:
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy would look for localhost on its own machine
        self._opener = urllib.request.build_opener(*handlers)

    def json(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON answer of the server."""
        return self.parsed(path, self.answer(path, query))

    def parsed(self, path: str, answer: bytes) -> Any:
        """Return the JSON in an answer of the server."""
        try:
            made = parse_json(answer)
        except Unusable as reason:
            raise LoaderError(f"{reason} from {self.url}{path}", expected="JSON", fix="check the address") from None
        self._in_time(path)
        return made

    def _in_time(self, path: str) -> None:
        if time.monotonic() > self._until:
            raise self._failed(path, f"no whole answer within {self._limits.deadline_s:g} s: too slow")

    def answer(
        self,
        path: str,
        query: Mapping[str, Any] | None = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the answer of the server, up to the limit."""
        return b"".join(self._chunks(path, query, data, headers or {}))

    def _chunks(
        self, path: str, query: Mapping[str, Any] | None, data: bytes | None, headers: Mapping[str, str]
    ) -> Iterator[bytes]:
        left = self._until - time.monotonic()
        if left <= 0:
            raise self._failed(path, "no time left")
        ask = self.url + path + ("?" + urllib.parse.urlencode(query, doseq=True) if query else "")
        with _deadline(left):
            try:
                request = urllib.request.Request(ask, data, {"Accept": "*/*", **self._headers, **headers})
                with self._opener.open(request, timeout=min(left, self._limits.timeout_s)) as response:
                    total = 0
                    while chunk := response.read1(_CHUNK):
                        total += len(chunk)
                        self._limits.check("answer_bytes", total)
                        yield chunk
                    if (promised := response.headers.get("Content-Length", "")).isdigit() and int(promised) > total:
                        self._in_time(path)
                        raise self._failed(path, "an answer that breaks off")
                    self._in_time(path)
            except urllib.error.HTTPError as error:
                said = ""
                with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                    said = " ".join(error.read(300).decode(errors="replace").split())
                raise self._failed(path, f"{error.code}: {said}" if said else str(error.code)) from None
            except LoaderError:
                raise
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._in_time(path)  # the connection was closed for it, which looks like a broken answer
                raise self._failed(path, f"{type(error).__name__}: {error}") from None

    def _failed(self, path: str, what: str) -> LoaderError:
        return LoaderError(
            f"{what[:300]} from {self.url}{path}"[:600], expected="an answer", fix="check the address, and that it runs"
        )


class _Near(urllib.request.HTTPRedirectHandler):
    """Follow redirects within the server only: the request headers are for this server alone."""

    max_redirections = _REDIRECTS

    def __init__(self, home: urllib.parse.SplitResult):
        self._home = (home.scheme, home.hostname, home.port)

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        there = urllib.parse.urlsplit(newurl)
        if (there.scheme, there.hostname, there.port) != self._home:
            raise LoaderError(
                f"a redirect to {newurl!r:.200}", expected="an answer from the server itself", fix="ask there, if meant"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_timed = threading.local()


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Close the connections that this thread opens after so many seconds, however slowly they deliver."""
    opened: list[socket.socket] = []

    def shut() -> None:
        for sock in opened:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, shut)
    timer.daemon = True
    _timed.opened = opened
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        _timed.opened.append(self.sock)


class _SecureConnection(http.client.HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        _timed.opened.append(self.sock)


class _Watched(urllib.request.HTTPHandler):
    def http_open(self, req: Any) -> Any:
        return self.do_open(_Connection, req)


class _WatchedSecure(urllib.request.HTTPSHandler):
    def https_open(self, req: Any) -> Any:
        return self.do_open(_SecureConnection, req)
