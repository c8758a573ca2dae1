"""Keys made of code: what changes them, and what does not."""

import ast
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dspkit
from dspkit.apps import star
from dspkit.bo import Search
from dspkit.comparison import Rules
from dspkit.comparison.cases import runs_of
from dspkit.comparison.result_cache import fingerprint
from dspkit.core import caching
from dspkit.core.jit import allocation_free, inlined
from dspkit.policies.autrascale import AuTraScale
from dspkit.policies.ds2 import DS2
from dspkit.simulator.fluid.engine import Fluid
from dspkit.ui import Explorer
from dspkit.workload import Constant

PACKAGE = Path(dspkit.__file__).parent


def package(folder, **modules):
    """A package of these modules; "a__b" is module b of its package a, and "a__" that package itself."""
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    for name, text in modules.items():
        path = folder.joinpath(*(part or "__init__" for part in name.split("__"))).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    return folder


def key(folder, module="a", **options):
    return caching.module_key(folder / f"{module}.py", **options)


def test_the_text_of_a_module_tells_what_it_imports_at_its_top():
    """As Python's own parser sees it, for each module of dspkit."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        expected = set()
        for node in tree.body:
            if isinstance(node, ast.Import):
                expected |= {(alias.name, ()) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = tuple((a.name, a.asname or a.name) for a in node.names)
                expected.add(("." * node.level + (node.module or ""), names))
        found = {(i.base, i.names) for i in caching._source(path).imports if not i.nested}
        assert found == expected, path


def test_the_text_of_a_module_tells_what_it_imports_inside_functions():
    """All imports but those for type checkers, whatever they are nested in."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        tree.body = [n for n in tree.body if not (isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")]
        expected = {"." * n.level + (n.module or "") for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert {i.base for i in caching._source(path).imports if i.names} >= expected, path


BASE = {"a": "from .b import f\n\ndef g(): return f()\n", "b": "def f(): return 1\n", "c": "def h(): return 2\n"}


def test_a_key_is_of_contents_not_of_names_and_places(tmp_path):
    first = key(package(tmp_path / "one", **BASE))
    assert first == key(package(tmp_path / "two" / "elsewhere", **BASE))
    others = BASE | {"c": "def h(): return 3\n"}
    assert first == key(package(tmp_path / "three", **others))  # which a does not import
    moved = package(tmp_path / "four", **BASE)
    (moved / "a.py").rename(moved / "z.py")
    assert first == key(moved, "z")


@pytest.mark.parametrize(
    "change",
    [
        {"a": BASE["a"] + "# a comment\n"},
        {"b": "def f(): return 2\n"},
        {"a": "from .c import h as f\n\ndef g(): return f()\n"},
        {"b": "from .c import h as f\n"},
    ],
)
def test_a_key_changes_with_what_the_module_depends_on(tmp_path, change):
    assert key(package(tmp_path / "one", **BASE)) != key(package(tmp_path / "two", **(BASE | change)))


def test_two_modules_that_change_their_names_change_the_key(tmp_path):
    """The same contents in other places: who imports both now gets each for the other."""
    parts = {"a": "from .b import f\nfrom .c import f as g\n", "b": "def f(): return 1\n", "c": "def f(): return 2\n"}
    swapped = parts | {"b": parts["c"], "c": parts["b"]}
    assert key(package(tmp_path / "one", **parts)) != key(package(tmp_path / "two", **swapped))


def test_what_a_package_passes_on_counts_as_imported_from_where_it_is(tmp_path):
    parts = {
        "a": "from .p import f\n",
        "p__": "from .inner import f\nfrom .other import g\n",
        "p__inner": "f = 1\n",
        "p__other": "g = 1\n",
    }
    folder = package(tmp_path / "one", **parts)
    assert [p.name for p in caching.dependencies((folder / "a.py").resolve())] == ["inner.py"]
    changed = package(tmp_path / "two", **(parts | {"p__inner": "f = 2\n"}))
    assert key(folder) != key(changed)


def test_a_package_that_imports_by_computed_names_stands_for_all_its_modules(tmp_path):
    lazy = "def __getattr__(name):\n    return __import__(name)\n"
    parts = {"a": "from .p import f\n", "p__": lazy, "p__inner": "f = 1\n"}
    assert key(package(tmp_path / "one", **parts)) != key(
        package(tmp_path / "two", **(parts | {"p__inner": "f = 2\n"}))
    )


def test_imports_inside_functions_count_if_asked_for_and_those_for_types_never(tmp_path):
    text = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .t import T\n\ndef g():\n    from .b import f\n"
    )
    parts = {"a": text, "b": "f = 1\n", "t": "T = 1\n"}
    one = package(tmp_path / "one", **parts)
    two = package(tmp_path / "two", **(parts | {"b": "f = 2\n"}))
    three = package(tmp_path / "three", **(parts | {"t": "T = 2\n"}))
    assert key(one) == key(two) == key(three)
    assert key(one, nested=True) != key(two, nested=True)
    assert key(one, nested=True) == key(three, nested=True)


def test_modules_that_import_each_other_have_a_key(tmp_path):
    parts = {"a": "from . import b\nx = 1\n", "b": "from . import a\ny = 1\n"}
    changed = parts | {"a": "from . import b\nx = 2\n"}
    first, second = package(tmp_path / "one", **parts), package(tmp_path / "two", **changed)
    assert len({key(first), key(first, "b"), key(second), key(second, "b")}) == 4


def test_the_key_of_a_package_is_of_all_its_contents(tmp_path):
    first, same = package(tmp_path / "one", **BASE), package(tmp_path / "two", **BASE)
    other = package(tmp_path / "three", **(BASE | {"c": "def h(): return 3\n"}))
    of = [caching.package_key(folder / "a.py") for folder in (first, same, other)]
    assert of[0] == of[1] != of[2]


KERNEL = f"""from {allocation_free.__module__} import allocation_free

from .step import step


@allocation_free
def total(x):
    return step(x) + 1
"""
STEP = f"""from {inlined.__module__} import inlined


@inlined
def step(x):
    return 2 * x
"""
CALL = """
import sys
from importlib import import_module
sys.path.insert(0, {home!r})
total = import_module("kernels.{module}").total
print(total(10), sum(total.stats.cache_hits.values()), sum(total.stats.cache_misses.values()))
{then}
"""


@pytest.fixture
def kernels(tmp_path):
    return package(tmp_path / "kernels", total=KERNEL, step=STEP)


def called(kernels, module="total"):
    """What a new process gets from the kernel for 10, and whether it took the machine code from the disk."""
    code = CALL.format(home=str(kernels.parent), module=module, then="")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    value, hits, misses = map(int, out.split())
    assert hits + misses == 1
    return value, "kept" if hits else "compiled"


def rewrite(path, text):
    """Another text under the same date and size, which is what numba looks at."""
    stat = path.stat()
    path.write_text(text)
    assert path.stat().st_size == stat.st_size
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def folders(kernels):
    return {p.name for p in (kernels / "__pycache__").glob("numba-*")}


def test_a_change_in_what_was_inlined_compiles_again_and_cleans_up(kernels):
    assert called(kernels) == (21, "compiled")
    assert called(kernels) == (21, "kept")
    before = folders(kernels)
    rewrite(kernels / "step.py", STEP.replace("2 * x", "3 * x"))
    assert called(kernels) == (31, "compiled")
    assert len(folders(kernels)) == len(before) == 1
    assert not folders(kernels) & before


def test_a_renamed_kernel_is_compiled_again_and_never_an_old_one(kernels):
    """Also under a name that another kernel had, with its date and size."""
    assert called(kernels) == (21, "compiled")
    (kernels / "total.py").rename(kernels / "sum.py")
    assert called(kernels, "sum") == (21, "compiled")
    assert called(kernels, "sum") == (21, "kept")
    other = KERNEL.replace("+ 1", "+ 5")
    (kernels / "total.py").write_text(other)
    os.utime(kernels / "total.py", ns=((stat := (kernels / "sum.py").stat()).st_atime_ns, stat.st_mtime_ns))
    assert called(kernels) == (25, "compiled")
    assert called(kernels, "sum") == (21, "kept")


def test_what_another_process_uses_is_not_deleted(kernels):
    code = CALL.format(home=str(kernels.parent), module="total", then="sys.stdout.flush(); sys.stdin.read()")
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as user:
        assert user.stdout.readline() == "21 0 1\n"
        before = folders(kernels)
        rewrite(kernels / "step.py", STEP.replace("2 * x", "3 * x"))
        assert called(kernels) == (31, "compiled")
        assert before < folders(kernels)
        user.stdin.close()
    rewrite(kernels / "step.py", STEP.replace("2 * x", "4 * x"))
    assert called(kernels) == (41, "compiled")
    assert len(folders(kernels)) == 1


USED = (fingerprint, runs_of, Rules, AuTraScale, Constant, star)
FINGERPRINTS = (
    "".join(f"from {one.__module__} import {one.__name__}\n" for one in USED)
    + """
from {policy} import DS2

class Own(DS2):
    pass

policies = {{"ds2": DS2(), "autrascale": AuTraScale(), "own": Own()}}
runs = runs_of(policies, {{"l": Constant(300.0)}}, star(), None, [0], Rules())
print(*(fingerprint(run) for run in runs if run.policy is not None))
"""
)


@pytest.mark.slow
def test_a_finished_run_is_known_by_the_code_it_used_wherever_that_code_is(tmp_path):
    """A copy of dspkit, changed: only runs that may pass through the change are run again."""
    home = tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, home, ignore=shutil.ignore_patterns("__pycache__", "*.json", "*.java", "*.jar"))

    def fingerprints(policy=DS2.__module__):
        env = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", FINGERPRINTS.format(policy=policy)]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=env, cwd=tmp_path).stdout.split()

    def file(cls):
        return home / Path(inspect.getfile(cls)).relative_to(PACKAGE)

    def changed(cls):
        file(cls).write_text(file(cls).read_text() + "# changed\n")
        return fingerprints()

    first = fingerprints()
    assert len(set(first)) == 3
    view = changed(Explorer)
    assert view[:2] == first[:2]
    assert view[2] != first[2]  # somebody's own class may use all of dspkit
    search = changed(Search)
    assert search[0] == first[0]
    assert search[1] != first[1]
    last = changed(Fluid)
    assert not set(last) & {*first, *search}
    shutil.copy(file(DS2), file(DS2).with_name("renamed.py"))
    assert fingerprints(f"{DS2.__module__.rpartition('.')[0]}.renamed")[0] == last[0]
