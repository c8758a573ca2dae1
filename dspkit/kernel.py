"""The kernel that notebooks are run in headless, and the client that talks to it.

Imported by `notebook` alone: it loads nbclient and jupyter_client.
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

#: Longest wait for the shell channel in one go. A kernel's answer is at most this much late when its wake-up is lost.
SLICE_S = 0.25


class _ShellChannel(AsyncZMQSocketChannel):
    """Waits in slices.

    When an ipywidgets.Output captures much (a megabyte is enough), nbclient sends it back to the kernel on the very
    socket that another task waits on, and the send swallows that task's wake-up: the cell then never ends
    (nbclient #312). Asking again finds the answer that lay there all the time.
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
    """Starts the ipykernel of this very Python, whatever kernels are installed where."""

    client_factory = Type(_KernelClient)

    @property
    def kernel_spec(self) -> KernelSpec:
        quiet = "--IPKernelApp.log_level=50"  # else every run warns that loopback is not encrypted
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", quiet]
        return KernelSpec(argv=argv, display_name="Python", language="python")


class Client(NotebookClient):
    """An nbclient whose kernel is ours."""

    kernel_manager_class = Type(_KernelManager, klass=AsyncKernelManager)

    @property
    def stopped(self) -> bool:
        """Whether Ctrl-C or a signal to end came while it ran; nbclient has then ended the kernel."""
        return hasattr(self, "_async_cleanup_kernel_future")

    async def _async_cleanup_kernel(self) -> None:
        if self.km is not None:  # after a signal nbclient comes here twice, and trips over what it did itself
            await super()._async_cleanup_kernel()
