"""Fuzzing of all parsers of text and files that others provide: `make fuzz`, ten minutes each.

    make fuzz ARGS="markdown settings --seconds 60"      some of them, shorter
    make fuzz ARGS="markdown --input .cache/fuzz/markdown-crash-..."      one input again, with its traceback

atheris mutates inputs and keeps those that reach new code in .cache/fuzz/<parser>/, from which the next run continues.
Only the modules of the parser are instrumented. An input is refused by an error of dspkit, or its result is checked.
The exit code is 1 if one was not.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".cache" / "fuzz"
SECONDS, ONE_S, MOST_BYTES, MOST_MB = 600, 20, 20_000, 4_000
STATISTICS = re.compile(r"stat::(\w+):\s+(\d+)")
COVERAGE = re.compile(r"cov: (\d+) ft: (\d+)")


@dataclass(frozen=True)
class Target:
    """A parser: the modules that are instrumented, inputs to begin with, and a function that parses and checks one."""

    modules: tuple[str, ...]
    seeds: Callable[[], Iterable[bytes]]
    check: Callable[[bytes], object]


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


class SafeHTML(HTMLParser):
    """Asserts that a page neither runs anything nor asks the network for anything by itself."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in "script style iframe object embed link meta base form input svg template".split(), tag
        for name, value in attrs:
            value = re.sub(r"[\x00-\x20]", "", value or "").lower()
            assert not name.startswith("on"), name
            assert name != "src" or value.startswith("data:image/"), value
            assert name != "href" or re.match(r"(https?:|mailto:|#|\w*$)", value), value
            assert name != "style" or re.fullmatch(r"text-align:\w+;?", value), value


def check_markdown(data: bytes) -> None:
    from dspkit.report.html import markdown

    SafeHTML().feed(markdown(text_of(data)))


def check_formula(data: bytes) -> None:
    from dspkit.report.html import mathml

    SafeHTML().feed(mathml(text_of(data)) or "")


def check_settings(data: bytes) -> None:
    from dspkit.ui.settings import Settings

    made = Settings.load(text_of(data))
    assert Settings.load(repr(made)) == made


def check_printed(data: bytes) -> None:
    """Code that passes for printed imports and calls nothing but dspkit's own."""
    from dspkit.core.parameters import is_printed_code

    text = text_of(data)
    if not is_printed_code(text):
        return
    for node in ast.walk(ast.parse(text)):
        assert not isinstance(node, (ast.Import, ast.Lambda, ast.FunctionDef, ast.ClassDef, ast.Subscript, ast.Starred))
        assert not isinstance(node, ast.ImportFrom) or str(node.module).partition(".")[0] == "dspkit"
        assert not isinstance(node, ast.Attribute) or not node.attr.startswith("_")
        assert not isinstance(node, ast.Name) or not node.id.startswith("__")


def check_json(data: bytes) -> None:
    from dspkit.core.untrusted import parse_json

    with contextlib.suppress(ValueError):
        parse_json(data)


def check_run(data: bytes) -> None:
    from dspkit import History

    path = scratch() / "run.parquet"
    path.write_bytes(data)
    repr(History.load(path))


def check_notebook(data: bytes) -> None:
    from dspkit.report.notebook import read_notebook

    path = scratch() / "input.ipynb"
    path.write_bytes(data)
    read_notebook(path)


def seeds_of_runs() -> list[bytes]:
    from dspkit import apps, run

    path = run("ds2", apps.word_count(), steps=2).save(scratch() / "seed.parquet", overwrite=True)
    return [Path(path).read_bytes()]


def seeds_of_settings() -> list[bytes]:
    from dspkit.ui.settings import Settings

    load = "Sine(mean_per_s=100, amplitude_per_s=50)"
    texts = [
        "app='star', policy=DS2(activation=2)",
        f"app='word_count', policy=Stela(), workload={load}, parallelism={{'count': 3}}",
        "app='star', policy=Fission(), seed=3, options={'engine': 'records'}",
    ]
    return [repr(Settings.load(f"Settings({text})")).encode() for text in texts]


def seeds_of_printed() -> list[bytes]:
    from dspkit import Experiment, apps, workload

    given = [("ds2", {}), ("stela", {"steps": 3}), ("static", {"load": workload.Sine(9, 2)})]
    return [Experiment(apps.star(), policy, **others).code().encode() for policy, others in given]


def seeds_of_notebooks() -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "notebooks").glob("*.ipynb"))[:3]]


def seeds_of_markdown() -> list[bytes]:
    import nbformat

    cells = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb"))[:6]:
        notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        cells += [cell.source.encode() for cell in notebook.cells if cell.cell_type == "markdown"]
    return [
        *cells,
        b'<a href="javascript:x" onclick=x>a</a> ![a](data:image/png;base64,AA==) [b](https://a) <svg onload=x>',
        b"| a | b |\n|:--|--:|\n| $x_1$ | ~~c~~ |\n\n[^1]\n\n[^1]: <details open>x</details>\n",
    ]


def loader_target(kind: str) -> Target:
    """The first byte chooses the file of an input that is replaced by the rest."""
    from loaders.test_hostile import check, kinds

    folder = scratch() / kind
    folder.mkdir(exist_ok=True)
    good = kinds(folder)[kind]
    names, place = sorted(good.files), folder / "input"
    for name, data in good.files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)

    def one(data: bytes) -> None:
        name = names[data[0] % len(names)] if data else names[0]
        try:
            (place / name).write_bytes(data[1:])
            check(good.load(place))
        finally:
            (place / name).write_bytes(good.files[name])

    seeds = [bytes([i]) + good.files[name] for i, name in enumerate(names[:256])]
    return Target(MODULES_OF_LOADERS, lambda: seeds, one)


MODULES_OF_LOADERS = ("dspkit.loaders", "dspkit.core.untrusted")
FORMULAS = (rb"\frac{a}{b_1^2}\sum_{i=0}^n", rb"\mathcal{V}")
LOADERS = (
    "csv",
    "parquet",
    "log",
    "zstd",
    "rest",
    "progress",
    "prometheus",
    "lines",
    "influxql",
    "flux",
    "flink",
    "storm",
)
TARGETS = {
    "markdown": Target(("dspkit.report.html", "mistune"), seeds_of_markdown, check_markdown),
    "formula": Target(("dspkit.report.html", "latex2mathml"), lambda: FORMULAS, check_formula),
    "settings": Target(("dspkit.core.parameters", "dspkit.ui.settings"), seeds_of_settings, check_settings),
    "printed": Target(("dspkit.core.parameters",), seeds_of_printed, check_printed),
    "json": Target(("dspkit.core.untrusted",), lambda: [b'{"a": [1, null, "x\\u0000"]}'], check_json),
    "run": Target(("dspkit.core.history", "dspkit.core.untrusted"), seeds_of_runs, check_run),
    "notebook": Target(("dspkit.report.notebook", "nbformat"), seeds_of_notebooks, check_notebook),
}  # fmt: skip


def target(name: str) -> Target:
    return TARGETS.get(name) or loader_target(name)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="dspkit-fuzz-", dir=memory)


def scratch() -> Path:
    """A folder of this process, in memory where there is one."""
    return Path(_folder().name)


def parse(found: Target, data: bytes) -> None:
    """Parse one input; what is refused in our words is fine."""
    from dspkit.core.errors import DspkitError

    with contextlib.suppress(DspkitError):
        found.check(data)


def play(name: str, corpus: Path, seconds: int) -> None:
    """Fuzz one parser in this process, which libFuzzer ends."""
    import atheris

    for module in TARGETS[name].modules if name in TARGETS else MODULES_OF_LOADERS:
        with atheris.instrument_imports(include=[module], enable_loader_override=False):
            importlib.import_module(module)
    found = target(name)
    for i, seed in enumerate(found.seeds()):
        (corpus / f"seed-{i}").write_bytes(seed)
    options = [f"-max_total_time={seconds}", f"-max_len={MOST_BYTES}", f"-rss_limit_mb={MOST_MB}", f"-timeout={ONE_S}"]
    options += ["-print_final_stats=1", f"-artifact_prefix={corpus.parent / name}-", "-close_fd_mask=1"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], lambda data: parse(found, data))
    atheris.Fuzz()


def slow_by_the_clock_only(path: Path) -> bool:
    """Return whether an input that took libFuzzer's patience takes little time of a core: it knows only the clock."""
    name, _, kind = path.name.partition("-")
    if not kind.startswith(("slow-unit-", "timeout-")):
        return False
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-W", "ignore", __file__, name, "--input", str(path)]
    limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (2 * ONE_S, 2 * ONE_S))
    code = subprocess.run(command, capture_output=True, check=False, preexec_fn=limit).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return code == 0 and after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < ONE_S


def fuzz(name: str, seconds: int) -> bool:
    """Fuzz one parser in a process of its own, and print a line about it; return whether all went well."""
    corpus = FOLDER / name
    corpus.mkdir(parents=True, exist_ok=True)
    before = set(FOLDER.glob(f"{name}-*"))
    command = [sys.executable, "-W", "ignore", __file__, name, "--alone", "--seconds", str(seconds)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    numbers = dict(STATISTICS.findall(done.stderr))
    reached = COVERAGE.findall(done.stderr)
    first, last = (reached[0][0], reached[-1][0]) if reached else ("?", "?")
    count = int(numbers.get("number_of_executed_units", 0))
    print(
        f"{name:12} {count:>10,} inputs   branches {first:>5} -> {last:>5}   kept {len(list(corpus.iterdir())):>5}",
        flush=True,
    )
    found = sorted(set(FOLDER.glob(f"{name}-*")) - before)
    if found and all(map(slow_by_the_clock_only, found)):
        print(f"{name:12} slow only because other programs had the cores: {', '.join(path.name for path in found)}")
        return True
    if done.returncode or found:
        print(done.stderr[-3000:])
        print(f"FAILED: {name}, {', '.join(map(str, found)) or f'exit code {done.returncode}'}", flush=True)
    return not done.returncode and not found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parsers", nargs="*", help=f"of {', '.join((*TARGETS, *LOADERS))}; default: all")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="for each parser")
    parser.add_argument("--input", type=Path, help="a file to parse once")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if wrong := set(given.parsers) - {*TARGETS, *LOADERS}:
        parser.error(f"no parser {', '.join(sorted(wrong))}")
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    if given.input:
        for name in given.parsers:
            parse(target(name), given.input.read_bytes())
        return 0
    if given.alone:
        play(given.parsers[0], FOLDER / given.parsers[0], given.seconds)
        return 0
    fine = [fuzz(name, given.seconds) for name in given.parsers or (*TARGETS, *LOADERS)]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
