"""A view of the ledger for notebooks: rows filtered by paper, class and nearness, and one of them made again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from html import escape
from pathlib import Path
from typing import Any

from . import ledger
from .classes import CLASSES, NEAR

NEARNESS = {"any": (0.0, float("inf")), "within a tenth": (1 - NEAR, 1 + NEAR), "within twice": (0.5, 2.0),
            "farther": (0.5, 2.0)}  # fmt: skip
SHOWN = 40  # rows of the table; the list has all


def chosen(paper: str = "all", kind: str = "all", nearness: str = "any") -> list[ledger.LedgerRow]:
    """Return the rows of a paper and a class whose factor, ours over printed, is that near.

    Examples
    --------
    >>> {row.kind for row in chosen("Stela", "missed", "farther")}
    {'missed'}
    """
    low, high = NEARNESS[nearness]
    return [
        row
        for row in ledger.everything()
        if paper in ("all", row.paper) and kind in ("all", row.kind)
        and (nearness == "any" or (row.factor is not None and (low <= row.factor <= high) == (nearness != "farther")))
    ]  # fmt: skip


class LedgerBrowser:
    """Menus for paper, class and nearness, the rows, and a button that makes the chosen one again in a process.

    Displaying it shows the view; `box` is its widget. The process is ended by Stop, and by making another row.
    """

    def __init__(self, paper: str = "all", kind: str = "all", nearness: str = "any") -> None:
        import ipywidgets as w

        menus = (("paper", ("all", *ledger.PAPERS.values()), paper), ("class", ("all", *CLASSES), kind),
                 ("factor", tuple(NEARNESS), nearness))  # fmt: skip
        self.paper, self.kind, self.nearness = (
            w.Dropdown(options=options, value=value, description=name) for name, options, value in menus
        )
        self.rows = w.Dropdown(description="row", layout=w.Layout(width="60em"))
        self.make, self.stop = w.Button(description="Make it again"), w.Button(description="Stop", disabled=True)
        self.said, self.table = w.HTML(), w.HTML()
        self._process: subprocess.Popen[str] | None = None
        for menu in (self.paper, self.kind, self.nearness):
            menu.observe(self._filter, "value")
        self.rows.observe(self._told, "value")
        self.make.on_click(self._start)
        self.stop.on_click(lambda _: self.end())
        self.box = w.VBox([w.HBox([self.paper, self.kind, self.nearness]), w.HBox([self.rows, self.make, self.stop]),
                           self.said, self.table])  # fmt: skip
        self._filter()

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.box)

    @property
    def row(self) -> ledger.LedgerRow | None:
        """The chosen row."""
        at = self.rows.value
        return None if at is None else self._some[at]

    def _filter(self, _: Any = None) -> None:
        self._some = chosen(self.paper.value, self.kind.value, self.nearness.value)
        self.rows.options = [(f"{r.place}: {r.what}"[:110], i) for i, r in enumerate(self._some)]
        self.rows.index = 0 if self._some else None
        head = "".join(f"<th>{name}</th>" for name in ("paper", "place", "what", "printed", "ours", "class", "why"))
        cells = (
            (r.paper, r.place, r.what, r.printed + r.unit, ledger.shown(r), r.kind, r.why) for r in self._some[:SHOWN]
        )
        lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in cells)
        of = f"{len(self._some)} of {len(ledger.everything())} rows"
        more = f", the first {SHOWN} below" if len(self._some) > SHOWN else ""
        self.table.value = f"<p>{of}{more}</p><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
        self._told()

    def _told(self, _: Any = None) -> None:
        row = self.row
        self.make.disabled = row is None or not row.key
        if row is None:
            self.said.value = "no row"
        elif not row.key:
            self.said.value = f"not modelled: {escape(row.why)}"
        else:
            seconds = ledger.expected_s(row.key)
            self.said.value = f"<code>{escape(row.command)}</code> took {seconds:,.0f} s of a core the last time"

    def _start(self, _: Any = None) -> None:
        row = self.row
        if row is None or not row.key:
            return
        self.end()
        command = [sys.executable, "-m", "reproduction.ledger", row.key]
        root = Path(__file__).parents[1]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root)
        self._process = process
        self.said.value, self.stop.disabled = "it runs ...", False
        threading.Thread(target=self._wait, args=(process, row), daemon=True).start()

    def _wait(self, process: subprocess.Popen[str], row: ledger.LedgerRow) -> None:
        out, errors = process.communicate()
        if process is not self._process:
            return  # another row runs
        self.stop.disabled = True
        if process.returncode:
            last = (errors.strip().splitlines() or ["stopped"])[-1]
            self.said.value = f'<span class="dspkit-error">{escape(last)}</span>' if errors.strip() else "stopped"
            return
        made = json.loads(out)
        again = row._replace(ours=", ".join(map(str, made)) if isinstance(made, list) else made)
        self.said.value = (
            f"printed <b>{escape(row.printed + row.unit)}</b>, committed <b>{escape(ledger.shown(row))}</b>, "
            f"made again just now <b>{escape(ledger.shown(again))}</b> ({escape(row.kind)})"
        )

    def end(self) -> None:
        """End the process of a row that is being made."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
