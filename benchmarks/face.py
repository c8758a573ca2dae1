"""The public face: documentation, site, wheel, plain installation, README."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import Claim

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
AXE = "axe-core"


def _ran(*command: object, **variables: str) -> str:
    ran = subprocess.run(
        [*map(str, command)], cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise RuntimeError((ran.stdout + ran.stderr)[-2000:])
    return ran.stdout


@functools.cache
def _site() -> list[Path]:
    """The pages of the site, which is built strictly: a dead link or a public name without a docstring fails here."""
    _ran(sys.executable, ".ci/website.py", "--no-examples")
    return sorted(SITE.rglob("*.html"))


def undocumented_public_names() -> Claim:
    """Public objects without a docstring, or without a heading in the built reference."""
    _site()
    pages = "".join(path.read_text(encoding="utf-8") for path in (SITE / "reference").glob("*.html"))
    shown = set(re.findall(r'id="(dspkit[\w.]*)"', pages))
    api = (ROOT / "tests" / "tooling" / "api.txt").read_text(encoding="utf-8")
    names, missing = 0, []
    for part in sorted(set(re.findall(r"^dspkit\.(\w+): module$", api, re.MULTILINE))):
        module = import_module(f"dspkit.{part}")
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                names += 1
                if not inspect.getdoc(thing) or f"{thing.__module__}.{thing.__qualname__}" not in shown:
                    missing.append(f"{part}.{name}")
    return Claim(len(missing), "names", 0, "lower", {"names": names, "missing": missing[:20]})


def dead_links() -> Claim:
    """Links of built pages to files or anchors that the site does not have."""
    pages = _site()
    text = {path.resolve(): path.read_text(encoding="utf-8") for path in pages}
    anchors = {path: set(re.findall(r'\b(?:id|name)="?([^"\s>]+)', page)) for path, page in text.items()}
    links, dead = 0, []
    for path, page in text.items():
        if path.name == "404.html":
            continue  # its links are those of the server's root
        for target in re.findall(r'<a\b[^>]*\bhref="?([^"\s>]+)', page):
            if re.match(r"[a-z]+:", target):
                continue
            links += 1
            file, _, anchor = target.partition("#")
            to = (path.parent / file).resolve() if file else path
            to = to / "index.html" if to.is_dir() else to
            if not to.exists() or (anchor and to in anchors and anchor not in anchors[to] and anchor != "__skip"):
                dead.append(f"{path.relative_to(SITE)}: {target}")
    return Claim(len(dead), "links", 0, "lower", {"links": links, "dead": dead[:20]})


def _visited(visit: Any, pages: list[Path]) -> None:
    from playwright.sync_api import sync_playwright

    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        for scheme in ("light", "dark"):
            context = chromium.new_context(color_scheme=scheme, reduced_motion="reduce")
            page = context.new_page()
            page.set_default_timeout(120_000)
            for path in pages:
                visit(page, path, scheme)
            context.close()
        chromium.close()


def outside_requests() -> Claim:
    """Requests that a browser makes to anything but the site's files while it opens pages, of all kinds."""
    asked: list[str] = []
    heard: list[Any] = []
    seen = [0]

    def visit(page: Any, path: Path, scheme: str) -> None:
        if page not in heard:
            heard.append(page)
            page.on("request", lambda request: asked.append(request.url))
        seen[0] += 1
        page.goto(path.as_uri())
        page.wait_for_load_state()

    _visited(visit, _some(_site()))
    outside = [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))]
    return Claim(
        len(outside), "requests", 0, "lower", {"requests": len(asked), "pages": seen[0], "outside": outside[:10]}
    )


def failing_examples() -> Claim:
    """Pages of docs/howto whose blocks fail, those that start Spark left out (they are in the slow tests)."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "tests/tooling/test_docs.py"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    passed, failed = (re.search(rf"(\d+) {word}", ran.stdout) for word in ("passed", "failed"))
    if passed is None and failed is None:
        raise RuntimeError(ran.stdout[-2000:] + ran.stderr[-2000:])
    return Claim(int(failed[1]) if failed else 0, "pages", 0, "lower", {"passed": int(passed[1]) if passed else 0})


@functools.cache
def _wheel() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="dspkit-wheel-"))
    _ran(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def wheel_mb() -> Claim:
    """The wheel, with notebooks, studies and data."""
    return Claim(_wheel().stat().st_size / 1e6, "MB", 5, "lower")


def plain_installation_works() -> Claim:
    """1 if `import dspkit` and `run("ds2", app)` work in a bare environment with the core's dependencies alone."""
    folder = Path(tempfile.mkdtemp(prefix="dspkit-bare-"))
    try:
        _ran(sys.executable, "-m", "venv", folder)
        _ran(folder / "bin" / "python", "-m", "pip", "install", "-q", "--only-binary=:all:", _wheel())
        code = "import dspkit, sys; print(len(dspkit.run('ds2', 'word_count', steps=5)), 'numba' in sys.modules)"
        printed = _ran(folder / "bin" / "python", "-P", "-c", code, PYTHONPATH="")
        size = sum(p.stat().st_size for p in (folder / "lib").rglob("*") if p.is_file() and not p.is_symlink())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Claim(float(printed.split() == ["5", "False"]), "", 1, detail={"unpacked MB, pip included": size / 1e6})


def axe_violations() -> Claim:
    """Violations that axe-core finds on pages of all kinds, light and dark; `npm pack axe-core` brings it to .cache."""
    script, checked = _axe(), [0]
    found: dict[str, Any] = {}

    def visit(page: Any, path: Path, scheme: str) -> None:
        page.goto(path.as_uri())
        page.evaluate(script)
        result = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        checked[0] += 1
        for one in result["violations"]:
            found.setdefault(f"{path.relative_to(SITE)} ({scheme}): {one['id']}", one["nodes"][0]["html"][:120])

    _visited(visit, _some(_site()))
    return Claim(len(found), "violations", 0, "lower", {"pages": checked[0], "found": json.dumps(found)[:3000]})


def _some(pages: list[Path]) -> list[Path]:
    """One to three pages of each folder, and all of the root."""
    by_folder: dict[Path, list[Path]] = {}
    for path in pages:
        if path.name not in ("404.html", "reproduction.html"):
            by_folder.setdefault(path.parent, []).append(path)
    return [path for folder, some in by_folder.items() for path in (some if folder == SITE else some[:3])]


def _axe() -> str:
    """The script of axe-core, downloaded once by npm."""
    folder = ROOT / ".cache" / AXE
    path = folder / "package" / "axe.min.js"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", AXE, "--silent"], cwd=folder, check=True, capture_output=True)
        (archive,) = folder.glob("*.tgz")
        shutil.unpack_archive(archive, folder, filter="data")
    return path.read_text(encoding="utf-8")


def readme_words() -> Claim:
    """All words of the README, with code and tables."""
    return Claim(len((ROOT / "README.md").read_text(encoding="utf-8").split()), "words", 700, "lower")
