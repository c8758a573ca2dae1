"""What the compiled searches share. Modules named kernels_* are compiled together."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..simulator.compiled import inlined

Array = np.ndarray[Any, Any]
TINY = 1e-9


@inlined
def copy(into: Array, of: Array) -> None:
    for k in range(len(into)):
        into[k] = of[k]
