"""The listening sockets of this process and its descendants, from the kernel's tables."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LISTEN = "0A"
LOOK_S = 0.02


@dataclass(frozen=True)
class Bound:
    """A socket that takes what arrives at its address: TCP that listens, or UDP."""

    kind: str
    address: str
    port: int
    pid: int
    command: str

    @property
    def loopback(self) -> bool:
        address = ipaddress.ip_address(self.address)
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback


def _table() -> list[tuple[str, str, int, str]]:
    """Kind, address, port and inode of each socket of this machine that takes what arrives."""
    found = []
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            row = line.split()
            words, _, port = row[1].partition(":")
            if kind.startswith("udp") or row[3] == LISTEN:
                raw = bytes.fromhex(words)
                packed = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
                found.append((kind, str(ipaddress.ip_address(packed)), int(port, 16), row[9]))
    return found


def family() -> set[int]:
    """This process and its descendants."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found, fresh = {os.getpid()}, {os.getpid()}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


class Sockets:
    """Reads the tables; remembers whose each socket is, as an inode is never another's."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[int, str] | None] = {}

    def read(self) -> set[Bound]:
        rows = _table()
        if unknown := {row[3] for row in rows} - self._owners.keys():
            self._owners |= dict.fromkeys(unknown)
            for pid in family():
                with contextlib.suppress(OSError):
                    command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
                    for link in Path(f"/proc/{pid}/fd").iterdir():
                        with contextlib.suppress(OSError):
                            inode = os.readlink(link).removeprefix("socket:[").removesuffix("]")
                            if inode in unknown:
                                self._owners[inode] = pid, command
        return {Bound(*row[:3], *owner) for row in rows if (owner := self._owners[row[3]]) is not None}


class Watch:
    """Reads the tables again and again, from its beginning to its end."""

    def __init__(self) -> None:
        self.beyond: set[Bound] = set()
        self.within: set[Bound] = set()
        self.looks = 0
        self._sockets, self._ended = Sockets(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Watch:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join()
        self._look()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._ended.wait(LOOK_S):
                self._look()
        except BaseException as error:
            self._error = error

    def _look(self) -> None:
        for socket in self._sockets.read():
            (self.within if socket.loopback else self.beyond).add(socket)
        self.looks += 1
