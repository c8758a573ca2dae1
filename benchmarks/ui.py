"""Costs of a live view: a picture as plain data beside the same picture built with plotly's own methods."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from functools import cache
from typing import Any

from benchmarks import Claim, side_by_side
from dspkit import History, apps, plots, run
from dspkit.policies.ds2 import DS2


def redraw_over_plotly_methods() -> Claim:
    """Time of the timeline of a run of 90 windows by plotly's methods over that as plain data, frames in both."""
    app = apps.diamond()
    history = run(DS2(), app.simulator(seed=1), steps=90)
    rivals = {"plain": lambda: _plain(history), "plotly": lambda: _plotly(history)}
    times = side_by_side(rivals, repeats=15)
    return Claim(times["plotly"] / times["plain"], "x", target=3, detail=times)


def _plain(history: History) -> object:
    return plots.timeline(history, target_latency_s=0.18).bundle


def _plotly(history: History) -> object:
    from plotly.subplots import make_subplots

    spec = plots.timeline(history, target_latency_s=0.18).spec
    figure = make_subplots(rows=4, cols=1, shared_xaxes=True)
    for trace in spec["data"]:  # marks of decisions are on the third row
        row = min(4, int(trace["yaxis"][1:] or 1))
        figure.add_scatter(**{k: v for k, v in trace.items() if k not in ("type", "xaxis", "yaxis")}, row=row, col=1)
    for shape in spec["layout"]["shapes"]:
        figure.add_vline(x=shape["x0"], line=shape["line"])
    return figure.to_json()


MOVED = 500  # moves of the slider in total
PACED, PAUSE_MS = 60, 300  # of these with a pause between them, like a person
_CELLS = {
    "graph": "view = ui.TopologyView(run(DS2(), apps.word_count().simulator(), steps=90))\nview",
    "a bare label": (
        "import ipywidgets as w\nbare, label = w.IntSlider(description='bare', max=60), w.HTML('<p class=bare>0</p>')\n"
        "bare.observe(lambda c: setattr(label, 'value', f'<p class=bare>{c.new}</p>'), 'value')\nw.VBox([bare, label])"
    ),
    "lesson": "lesson = ui.Lesson(lessons.Contention())\nlesson",
}
_SLIDERS = {"graph": "window", "a bare label": "bare", "lesson": "io share"}


@cache
def _browsed() -> dict[str, Any]:
    """Two simulated views in a real JupyterLab: each move of a slider timed in the browser, memory before and after."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    from benchmarks import _lab

    start = "from dspkit import apps, run, ui\nfrom dspkit.ui import lessons\nfrom dspkit.policies.ds2 import DS2\n"
    told: dict[str, Any] = {}
    with _lab.lab() as (address, folder), _lab.page() as page:
        for name, source in _CELLS.items():
            path = folder / f"{name}.ipynb"
            nbformat.write(new_notebook(cells=[new_code_cell(start + source)], metadata=_lab.KERNEL), path)
            _lab.open_and_run(page, address, path.name)
            slider = page.locator(".widget-slider", has_text=_SLIDERS[name]).first
            slider.wait_for(timeout=120_000)
            shown = ".bare" if name == "a bare label" else ".dspkit .js-plotly-plot"
            page.locator(shown).first.wait_for(timeout=60_000)
            slider.evaluate("e => e.querySelector('.noUi-handle').setAttribute('data-bench', '')")
            move = ["[data-bench]", shown]
            there_and_back = [["ArrowRight"] * 10 + ["ArrowLeft"] * 10]
            if name == "graph":  # the slider starts at the last window, so it moves back first
                there_and_back = [["ArrowLeft"] * 10 + ["ArrowRight"] * 10]
            page.evaluate(_lab.MOVES, [*move, 20, *there_and_back, 0])  # warm
            before = _size(page, path)
            times = sorted(page.evaluate(_lab.MOVES, [*move, PACED, *there_and_back, PAUSE_MS]))
            fast = page.evaluate(_lab.MOVES, [*move, MOVED - PACED, *there_and_back, 0]) if name == "graph" else [0.0]
            after = _size(page, path)
            told[name] = {
                "p50_ms": statistics.median(times), "p95_ms": times[int(0.95 * PACED)],
                "p50_without_rest_ms": statistics.median(fast), "memory_mb": after[0] - before[0],
                "kernel_mb": after[0], "file_kb": (after[1] - before[1]) / 1e3,
            }  # fmt: skip
            print(f"  {name}: " + ", ".join(f"{k} {v:.4g}" for k, v in told[name].items()), flush=True)
    return told


def _size(page: Any, path: Any) -> tuple[float, int]:
    """Return the memory of the kernel in MB, and the bytes of the saved notebook."""
    page.keyboard.press("Control+s")
    time.sleep(2.0)
    from benchmarks import _lab

    kernels = {pid: mb for pid, (what, mb) in _lab.memory(path.parent.parent).items() if "ipykernel" in what}
    return kernels[max(kernels)], len(json.dumps(json.loads(path.read_text())))


def memory_of_server_and_kernel_of_00() -> Claim:
    """Megabytes of JupyterLab and the kernel of notebook 00 after a run of the Explorer: Binder gives 2,000."""
    from benchmarks import _lab

    with _lab.lab() as (address, folder), _lab.page() as page:
        shutil.copy(_lab.ROOT / "notebooks" / "00_start.ipynb", folder)
        _lab.open_and_run(page, address, "00_start.ipynb")
        start = page.locator("button.jupyter-button", has_text="Start").first
        start.wait_for(timeout=120_000)
        start.click()
        page.get_by_text("Finished.").wait_for(timeout=120_000)
        found = _lab.memory(folder.parent)
    detail = {f"{what} {pid}": mb for pid, (what, mb) in found.items()}
    return Claim(sum(mb for _, mb in found.values()), "MB", target=2000, better="lower", detail=detail)


def slider_to_chart_p95() -> Claim:
    """Milliseconds from a slider's move to its changed chart in the browser, the 95th percentile of two views."""
    told = _browsed()
    views = [told[name]["p95_ms"] for name in ("graph", "lesson")]
    return Claim(max(views), "ms", target=150, better="lower", detail=told)


def kernel_growth_over_500_moves() -> Claim:
    """Megabytes that the kernel grows over 500 moves of a slider."""
    return Claim(_browsed()["graph"]["memory_mb"], "MB", target=30, better="lower", detail=_browsed())


def notebook_growth_over_500_moves() -> Claim:
    """Kilobytes that the notebook's file grows over 500 moves: plots replace their predecessors."""
    return Claim(_browsed()["graph"]["file_kb"], "kB", target=20, better="lower", detail=_browsed())


_PILOTED = """
import time
from dspkit import apps, ui
from dspkit.core import Operator, Topology
from dspkit.simulator import Plant, Service
from dspkit.workload import Trace

layers = [[f"stage{d}_{i}" for i in range(5)] for d in range(10)]
edges = [(u, v) for a, b in zip(layers, layers[1:]) for i, u in enumerate(a) for v in (b[i], b[(i + 1) % 5])]
graph = Topology(tuple(Operator(name) for layer in layers for name in layer), tuple(edges))
plant = Plant({name: Service(1 / 900, queue_records=1000) for name in graph.order})
big = apps.App("fifty", graph, plant, Trace((0, 200, 500), (300.0, 900.0, 500.0)))
explorer = ui.Explorer(APP, "ds2", windows=WINDOWS, speed=8)
told = explorer._publish


def publish():
    with open("windows.txt", "a") as file:
        print(len(explorer.history), time.time(), file=file)
    told()


explorer._publish = publish
explorer
"""
_WATCH = """() => {
    const view = document.querySelector('.ck').cockpit, draw = view.draw.bind(view);
    window.drawn = [];
    view.draw = () => { draw(); window.drawn.push([view.store.shown.rows.length, Date.now() / 1000]); };
}"""
_START = """() => new Promise(done => {
    const began = performance.now(), status = document.querySelector('.ck-status');
    document.querySelector('.ck-press[data-name=Start]').click();
    const look = () => status.textContent.startsWith('Starting')
        ? requestAnimationFrame(() => done(performance.now() - began)) : requestAnimationFrame(look);
    look();
})"""
_DRAWN = "count => Number(document.querySelector('.ck').dataset.windows) >= count"


@cache
def _piloted() -> dict[str, dict[str, float]]:
    """Runs of the Explorer in a real JupyterLab: when windows are done in the kernel, and when they are drawn."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    from benchmarks import _lab

    found: dict[str, dict[str, float]] = {}
    with _lab.lab() as (address, folder), _lab.page() as page:
        for name, app, busy_s in (("word count", "'word_count'", 15), ("fifty", "big", 0)):
            cells = [_PILOTED.replace("APP", app).replace("WINDOWS", "80"), f"time.sleep({busy_s})"]
            book = new_notebook(cells=[new_code_cell(cell) for cell in cells], metadata=_lab.KERNEL)
            nbformat.write(book, folder / f"{name}.ipynb")
            (folder / "windows.txt").unlink(missing_ok=True)
            _lab.open_and_run(page, address, f"{name}.ipynb")
            page.locator(".ck-press").first.wait_for(timeout=120_000)
            page.locator(".ck").evaluate("e => e.scrollIntoView()")
            page.evaluate(_WATCH)
            began = time.monotonic()
            acknowledged = page.evaluate(_START)  # while the next cell runs
            page.wait_for_function(_DRAWN, arg=2, timeout=240_000)
            moving = time.monotonic() - began
            page.wait_for_function(_DRAWN, arg=10, timeout=240_000)
            devtools = page.context.new_cdp_session(page)
            devtools.send(
                "Performance.setTimeDomain", {"timeDomain": "threadTicks"}
            )  # not what others do to the machine
            devtools.send("Performance.enable")
            before = _thread(page, devtools)
            page.wait_for_function(_DRAWN, arg=70, timeout=240_000)
            after = _thread(page, devtools)
            page.wait_for_function(_DRAWN, arg=80, timeout=240_000)
            lines = (folder / "windows.txt").read_text().splitlines()
            done = {float(window): float(at) for window, at in map(str.split, lines)}
            drawn: dict[int, float] = {}
            for rows, at in page.evaluate("() => window.drawn"):
                for window in range(len(drawn) + 1, int(rows) + 1):
                    drawn[window] = at
            late = sorted(1000 * (drawn[w] - done[w]) for w in range(5, 81))
            seconds = after["wall"] - before["wall"]
            found[name] = {
                "acknowledged_ms": acknowledged, "moving_s": moving, "lag_p50_ms": statistics.median(late),
                "lag_p95_ms": late[int(0.95 * len(late))], "busy": (after["busy"] - before["busy"]) / seconds,
                "frames_per_s": (after["frames"] - before["frames"]) / seconds,
            }  # fmt: skip
            print(f"  {name}: " + ", ".join(f"{k} {v:.4g}" for k, v in found[name].items()), flush=True)
    return found


def _thread(page: Any, devtools: Any) -> dict[str, float]:
    """Return seconds on the clock, processor seconds of the page's thread, and frames of the records so far."""
    metrics = {m["name"]: m["value"] for m in devtools.send("Performance.getMetrics")["metrics"]}
    frames = page.evaluate("() => document.querySelector('.ck').cockpit.graph.frames")
    return {"wall": time.monotonic(), "busy": metrics["TaskDuration"], "frames": frames}


def start_acknowledged_while_a_cell_runs() -> Claim:
    """Milliseconds from a click on Start to the word "Starting", while the kernel works on another cell."""
    told = _piloted()
    return Claim(told["word count"]["acknowledged_ms"], "ms", target=300, better="lower", detail=told)


def first_start_to_moving_chart() -> Claim:
    """Seconds from the first click on Start to a chart of two windows, simulated at 8 windows/s."""
    told = _piloted()
    return Claim(told["word count"]["moving_s"], "s", target=3, better="lower", detail=told)


def kernel_to_browser_lag_p95() -> Claim:
    """Milliseconds from the end of a window in the kernel to its picture, at 8 windows/s: the 95th percentile."""
    told = _piloted()
    return Claim(told["word count"]["lag_p95_ms"], "ms", target=250, better="lower", detail=told)


def page_thread_share() -> Claim:
    """Share of the page's thread that a run at 8 windows/s takes."""
    told = _piloted()
    return Claim(told["word count"]["busy"], "of 1", target=0.4, better="lower", detail=told)


def frames_with_50_operators() -> Claim:
    """Frames per second of the records that run along the edges of a graph of 50 operators."""
    told = _piloted()
    return Claim(told["fifty"]["frames_per_s"], "frames/s", target=20, detail=told)
