"""Names that load on first use, also those that a module of the package has as well."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("first", ["", "import dspkit.comparison.oracle, dspkit.comparison.compare"])
def test_an_exported_function_is_not_hidden_by_the_module_of_its_name(first):
    code = f"""
{first}
import dspkit
from dspkit import comparison
names = [dspkit.compare, dspkit.compare, *(getattr(comparison, n) for n in comparison.__all__ for _ in range(2))]
print(*[name for name in names if type(name).__name__ == "module"])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not out.strip()
