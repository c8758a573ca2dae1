"""The kernel that executes notebooks headless, and the client that talks to it.

Imported on first use only: it loads nbclient and jupyter_client.
"""

from __future__ import annotations

import sys
import time
from queue import Empty
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from traitlets import Type

#: Longest single wait for the shell channel, by which a kernel's answer is late if its wake-up is lost.
SLICE_S = 0.25


class _ShellChannel(AsyncZMQSocketChannel):
    """A shell channel that waits in slices.

    When an ipywidgets.Output captures a lot of output (a megabyte is enough), nbclient sends it back to the kernel on
    the socket on which another task waits. The send swallows that task's wake-up, and the cell never ends
    (nbclient #312). Polling again finds the answer, which has already arrived.
    """

    async def get_msg(self, timeout: float | None = None) -> dict[str, Any]:  # type: ignore[override]
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = SLICE_S if end is None else min(SLICE_S, max(0.0, end - time.monotonic()))
            try:
                return await super().get_msg(timeout=left)
            except Empty:
                if end is not None and time.monotonic() >= end:
                    raise


class _KernelClient(AsyncKernelClient):
    shell_channel_class = Type(_ShellChannel)


class _KernelManager(AsyncKernelManager):
    """A manager that starts the ipykernel of this Python, independently of installed kernel specs."""

    client_factory = Type(_KernelClient)

    @property
    def kernel_spec(self) -> KernelSpec:
        quiet = "--IPKernelApp.log_level=50"  # otherwise every run warns that loopback is not encrypted
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", quiet]
        return KernelSpec(argv=argv, display_name="Python", language="python")


class Client(NotebookClient):
    """An nbclient with our kernel manager."""

    kernel_manager_class = Type(_KernelManager, klass=AsyncKernelManager)

    @property
    def stopped(self) -> bool:
        """True if Ctrl-C or a signal interrupted the run; nbclient has then ended the kernel."""
        return hasattr(self, "_async_cleanup_kernel_future")

    async def _async_cleanup_kernel(self) -> None:
        if self.km is not None:  # after a signal nbclient calls this twice, and the second call would fail
            await super()._async_cleanup_kernel()
