"""Forms: a table of your own metrics, and an application of your own; each prints the code that does the same.

What a form guesses is shown with the reason, and nothing is read before a person confirms it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from keyword import iskeyword
from pathlib import Path
from typing import Any

import ipywidgets as w

from .. import plots
from ..advice import advise
from ..apps import App
from ..core import ArgumentError, History, Operator, Topology, TopologyError, files
from ..core.errors import visible
from ..core.html import html_table
from ..loaders import Guess, LoaderError, Table, guess_columns, peek
from ..loaders.common.units import units_of
from ..simulator import Plant, Service
from ..workload import Constant, Jump, Sine, Square, Workload
from .controls import Errors
from .explorer import Explorer
from .settings import load_code
from .view import heading, show_beside, show_plot

LARGEST = 64 << 20  # bytes of a table that a browser sends
NOT_THERE = "(not in the table)"
SHOWN = ("t", "operator", "parallelism", "input_rate", "processing_rate", "output_rate", "utilisation", "backlog")
_SAID = {
    "t": "end of the window",
    "operator": "name of the operator",
    "parallelism": "number of instances",
    "input_rate": "records that arrive",
    "processing_rate": "records that are processed",
    "output_rate": "records that are sent on",
    "utilisation": "share of the time in which instances work",
    "blocked": "share of the time in which receivers hold them up",
    "backlog": "records that wait",
    "cpu": "cores in use",
    "dropped": "records that were given up",
    "window_s": "length of the window",
}
_CLOCKS = ("s", "ms", "us", "ns")
_NAME = re.compile(r'\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<bare>[^\s">→][^>→]*?))\s*(?P<arrow>->|→|>|\Z)')
_NAMED = 10_000  # rows that are read for the names of operators
_WIDE = {"description_width": "110px"}
_ROW = {"width": "470px", "max_width": "100%"}


def read_graph(text: str) -> Topology:
    """Return the graph that is written down as chains, one per line: `read > parse > store`.

    Parameters
    ----------
    text : str
        The chains; an operator may be in several. A name with an arrow in it is in double quotes.

    Examples
    --------
    >>> read_graph("read > parse > store\\nparse > sessions > store").edges
    (('read', 'parse'), ('parse', 'store'), ('parse', 'sessions'), ('sessions', 'store'))
    >>> read_graph('"Source: read -> parse" > store').order
    ('Source: read -> parse', 'store')
    """
    names: dict[str, None] = {}
    edges: dict[tuple[str, str], None] = {}
    for line in text.splitlines():
        chain = _chain(line) if line.strip() else []
        names |= dict.fromkeys(chain)
        edges |= dict.fromkeys(zip(chain, chain[1:], strict=False))
    if not names:
        raise TopologyError("no operators", expected="at least one line", fix="as in read > parse > store")
    return Topology(tuple(map(Operator, names)), tuple(edges))


def _chain(line: str) -> list[str]:
    """Return the names in a line."""
    chain, at, arrow = [], 0, ">"
    with suppress(ValueError):  # of an invalid escape in quotes
        while arrow and (found := _NAME.match(line, at)):
            chain.append(found["bare"] or json.loads(found["quoted"]))
            at, arrow = found.end(), found["arrow"]
        if not arrow and all(chain):
            return chain
    raise TopologyError(
        f"the line {line.strip()!r:.80}",
        expected="names with > in between, those with an arrow of their own in double quotes",
        fix="as in read > parse > store",
    )


def _written(name: str) -> str:
    """Return a name as it is in a graph."""
    if name == name.strip() and name.splitlines() == [name] and not re.search('[>→"]', name):
        return name
    return json.dumps(name, ensure_ascii=name.splitlines() != [name])


def written_graph(topology: Topology) -> str:
    """Return the chains that `read_graph` reads: each edge once.

    Parameters
    ----------
    topology : Topology
        The graph.

    Examples
    --------
    >>> print(written_graph(read_graph("a > b > d\\na > c > d")))
    a > b > d
    a > c > d
    """
    left, lines = list(topology.edges), []
    while left:
        chain = list(left.pop(0))
        while following := next((edge for edge in left if edge[0] == chain[-1]), None):
            left.remove(following)
            chain.append(following[1])
        lines.append(" > ".join(map(_written, chain)))
    alone = [_written(name) for name in topology.order if not any(name in edge for edge in topology.edges)]
    return "\n".join([*lines, *alone])


class OwnData:
    """A form for a table of metrics: upload or path, a preview, columns and units to confirm, the graph, then advice.

    Display it, or drive it from code.

    Parameters
    ----------
    path : str or Path
        A table to begin with.
    graph : str
        Its graph as chains, one per line: "read > parse > store".

    Examples
    --------
    >>> import tempfile
    >>> rows = ["time,task,subtasks,in,busy", *(f"{t},{o},1,90,0.5" for t in (10, 20) for o in ("read", "work"))]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "metrics.csv")
    ...     _ = path.write_text("\\n".join(rows))
    ...     form = OwnData(path, graph="read > work")
    ...     form.columns["processing_rate"].value = "in"
    ...     form.read()
    >>> len(form.history), form.error
    (2, '')
    """

    def __init__(self, path: str | Path = "", *, graph: str = ""):
        self._errors, self._guesses, self._opening, self._opened = Errors(), dict[str, Guess](), "", ""
        self.history: History | None = None
        self.loader: Table | None = None
        guard = self._errors.guard
        self.upload = w.FileUpload(accept=".csv,.parquet", description="Upload a table", tooltip=".csv or .parquet")
        self.path = w.Text(
            description="or its path",
            placeholder="metrics.csv",
            tooltip="press Enter to open it",
            continuous_update=False,
            style=_WIDE,
            layout=_ROW,
        )
        self.preview = w.HTML()
        self.columns: dict[str, Any] = {}
        self.units: dict[str, Any] = {}
        self._why = {quantity: w.HTML() for quantity in _SAID}
        rows = {quantity: self._row(quantity) for quantity in _SAID}
        more = w.Accordion([w.VBox([rows[q] for q in _SAID if q not in SHOWN])], titles=("More columns",))
        self.same = w.BoundedIntText(
            1,
            min=1,
            max=100_000,
            description="instances",
            tooltip="of each operator, where no column says it",
            style=_WIDE,
            layout=_ROW,
        )
        self.graph = w.Textarea(
            value=graph,
            description="graph",
            placeholder="read > parse > store",
            rows=4,
            style=_WIDE,
            layout=_ROW,
            tooltip="who sends to whom: one chain per line; an operator may be in several",
            continuous_update=False,
        )
        self._hint, self._said, self._code, self._chart, self._advice = (
            w.HTML(),
            w.HTML(),
            w.HTML(),
            w.Output(),
            w.Output(),
        )
        said = "read the table with the columns, the units and the graph above"
        self.confirm = w.Button(
            description="The columns and units are right: read",
            tooltip=said,
            button_style="primary",
            layout={"width": "auto"},
        )
        self.ask = w.Button(
            description="Advice",
            tooltip="the bottleneck, and what each policy recommends",
            disabled=True,
            layout={"width": "auto"},
        )
        self.confirm.on_click(guard("reading", lambda _: self.read()))
        self.ask.on_click(guard("advice", lambda _: self.advise()))
        self.graph.observe(lambda _: self._hint.set_trait("value", ""), "value")
        self.upload.observe(guard("upload", self._uploaded), "value")
        self.path.observe(guard("path", lambda change: self.open(change["new"])), "value")
        self._form = w.VBox(
            [
                heading("What is in the columns"),
                *(rows[q] for q in SHOWN),
                self.same,
                more,
                heading("Who sends to whom"),
                self.graph,
                self._hint,
                w.HBox([self.confirm, self.ask]),
            ]
        )
        self._form.layout.display = "none"
        self.box = w.VBox(
            [
                w.HBox([self.upload, self.path], layout={"flex_flow": "row wrap"}),
                self._errors.widget,
                self.preview,
                self._form,
                self._said,
                self._chart,
                self._code,
                self._advice,
            ]
        )
        self.box.add_class("dspkit")
        if path:
            self.open(str(path))

    def _row(self, quantity: str) -> Any:
        name = quantity.replace("_", " ").removesuffix(" s")
        pick = w.Dropdown(
            options=[NOT_THERE],
            description="time" if quantity == "t" else name,
            tooltip=_SAID[quantity],
            style=_WIDE,
            layout={"width": "330px", "max_width": "100%"},
        )
        options = _CLOCKS if quantity == "t" else units_of(quantity)
        unit = w.Dropdown(
            options=options or ["–"],
            disabled=not options,
            tooltip=f"unit of the column: {_SAID[quantity]}",
            layout={"width": "130px"},
        )
        unit.add_class("dspkit-unit")
        self.columns[quantity], self.units[quantity] = pick, unit
        pick.observe(lambda _: self._show_why(quantity), "value")
        unit.observe(lambda _: self._show_why(quantity), "value")
        return w.HBox([pick, unit, self._why[quantity]], layout={"flex_flow": "row wrap"})

    def _show_why(self, quantity: str) -> None:
        """Say of a guess that it is one, and why; of what a person chose, nothing."""
        guess, column = self._guesses.get(quantity), self.columns[quantity].value
        same = guess is not None and guess.column == column
        as_guessed = same and guess is not None and guess.unit in (None, self.units[quantity].value)
        if quantity == "parallelism":  # else it is asked for
            self.same.layout.display = None if column == NOT_THERE else "none"
        said = f"guessed: {guess.reason}" if as_guessed and guess is not None else _SAID[quantity]
        self._why[quantity].value = f"<small>{escape(said)}</small>"

    # What a person does

    def open(self, path: str | Path) -> None:
        """Show the first rows of a table, and guess its columns.

        Parameters
        ----------
        path : str or Path
            A .csv or .parquet file.

        Examples
        --------
        >>> form = OwnData()
        >>> form.path.value = "nothing.csv"
        >>> form.error
        '...no file nothing.csv; expected a table; check the path...'
        """
        path = str(path).strip()
        if not path or path == self._opening:
            return
        rows = peek(path)
        self._guesses = guess_columns(path)
        former, self._opened = self._opened, path
        self._opening = path
        self.path.value = path
        self._opening = ""
        self.history = self.loader = None
        self.ask.disabled = True
        self._said.value = self._code.value = ""
        self._chart.outputs = self._advice.outputs = ()
        there = list(rows[0]) if rows else []
        self.preview.value = _table(rows, f"The first rows of {Path(path).name}")
        for quantity, pick in self.columns.items():
            guess = self._guesses.get(quantity)
            pick.options = [NOT_THERE, *there]
            pick.value = guess.column if guess is not None and guess.column in there else NOT_THERE
            unit = self.units[quantity]
            unit.value = guess.unit if guess is not None and guess.unit in unit.options else unit.options[0]
            self._show_why(quantity)
        self._form.layout.display = None
        self._suggest(path, another=former not in ("", path))

    def _suggest(self, path: str, another: bool) -> None:
        """Name the operators of the table, and write them down as a chain where there is no graph yet.

        The graph of another table stays if this one has its operators, as on the next day of the same job.
        """
        column = self.columns["operator"].value
        names: dict[str, None] = {}
        if column != NOT_THERE:
            names = dict.fromkeys(str(row[column]) for row in peek(path, _NAMED) if row.get(column))
        if another and not self._fits(names):
            self.graph.value = ""
        said = f"Operators of the table: {', '.join(names)}. " if names else ""
        if names and not self.graph.value.strip():
            self.graph.value = " > ".join(map(_written, names))
            said += "The chain above is only their order in the table: correct it."
        self._hint.value = f"<small>{escape(said)}</small>"

    def _fits(self, names: Mapping[str, None]) -> bool:
        with suppress(TopologyError):
            return set(read_graph(self.graph.value).order) <= set(names)
        return False

    def _uploaded(self, change: Any) -> None:
        """Keep an uploaded file where runs and reports are kept, so that the code can read it again."""
        if not change["new"]:
            return
        (sent,) = change["new"][-1:]
        name, content = Path(str(sent["name"]).replace("\\", "/")).name, bytes(sent["content"])
        if len(content) > LARGEST or not re.fullmatch(r"[\w][\w .+()-]{0,120}\.(csv|parquet)", name, re.IGNORECASE):
            raise LoaderError(
                f"the file {name!r:.80} of {len(content):,} bytes",
                expected=f"a .csv or .parquet file of at most {LARGEST >> 20} MB, with letters and digits in its name",
                fix="rename it, or put it beside the notebook and type its path",
            )
        folder = files.home("uploads")
        files.make_folder(folder)
        self.open(files.write_atomically(folder / name, lambda path: path.write_bytes(content), overwrite=True))

    def mapping(self) -> dict[str, Any]:
        """Return the columns as they are chosen now, in the form that `loaders.Table` takes.

        Examples
        --------
        >>> OwnData().mapping()
        {}
        """
        made: dict[str, Any] = {}
        for quantity, pick in self.columns.items():
            if pick.value != NOT_THERE:
                unit = self.units[quantity]
                usual = unit.disabled or unit.value == unit.options[0]
                made[quantity] = pick.value if usual else (pick.value, unit.value)
        return made

    def read(self) -> None:
        """Read the table as the form says, and show what was read."""
        path, columns = self.path.value, self.mapping()
        if not path:
            raise ArgumentError("no table", expected="a file", fix="upload one, or type its path")
        graph = read_graph(self.graph.value)
        more: dict[str, Any] = {} if "parallelism" in columns else {"parallelism": self.same.value}
        loader = Table(path, columns=columns, topology=graph, **more)
        history = loader.history()
        self.loader, self.history = loader, history
        self.picture = plots.timeline(history)
        show_plot(self._chart, self.picture)
        dropped = sum(loader.problems.values())
        said = f"{len(history)} windows of {len(graph.order)} operators; {self.picture.summary}"
        if dropped:
            said += f" {dropped} readings were not usable: {str(loader.problems).replace(chr(10), ', ')}"
        self._said.value = f"<p style='line-height:1.4'>{escape(said)}</p>"
        self._code.value = f"<b>The same as code</b><pre>{escape(self.code())}</pre>"
        self._advice.outputs = ()
        self.ask.disabled = False

    def code(self) -> str:
        """Return the code that reads the table, and asks for advice.

        Examples
        --------
        >>> print(OwnData(graph="read > work").code())
        from dspkit import Topology, advise, loaders
        <BLANKLINE>
        edges = (
            ('read', 'work'),
        )
        columns = {
        }
        graph = Topology(('read', 'work'), edges)
        job = loaders.Table('', columns=columns, topology=graph, parallelism=1)
        advise(job)
        """
        graph, columns = read_graph(self.graph.value), self.mapping()
        more = "" if "parallelism" in columns else f", parallelism={self.same.value}"
        chosen = _lines("{}", [f"{quantity!r}: {column!r}" for quantity, column in columns.items()])
        return (
            "from dspkit import Topology, advise, loaders\n\n"
            f"edges = {_lines('()', [repr(edge) for edge in graph.edges])}\n"
            f"columns = {chosen}\n"
            f"graph = Topology({graph.order!r}, edges)\n"
            f"job = loaders.Table({self.path.value!r}, columns=columns, topology=graph{more})\n"
            "advise(job)"
        )

    def advise(self) -> None:
        """Ask all policies about what was read, and show what they recommend."""
        if self.loader is None:
            raise ArgumentError("a table that was not read", expected="one that was", fix="press the button before")
        self.ask.description = "Advice: some seconds…"
        try:
            told = advise(self.loader)
            shown = [{"text/html": told._repr_html_(), "text/plain": repr(told)}, *(f.bundle for f in told.figures)]
        finally:
            self.ask.description = "Advice"
        self._advice.outputs = tuple({"output_type": "display_data", "data": each, "metadata": {}} for each in shown)

    @property
    def error(self) -> str:
        """The errors that the view shows, as HTML; empty without any."""
        return str(self._errors)

    def _ipython_display_(self) -> None:
        show_beside(self, None, self.box)


def _table(rows: Sequence[Mapping[str, Any]], caption: str) -> str:
    """Return rows as HTML, the values as they are."""
    import pandas as pd

    if not rows:
        return f"<p>{escape(visible(caption))}: there are none.</p>"
    table = html_table(pd.DataFrame([{column: str(v)[:60] for column, v in row.items()} for row in rows]), caption)
    return f"<p>{escape(visible(caption))}</p><div style='overflow-x:auto'>{table}</div>"


def _selectivity(sends: float) -> str:
    return "" if sends == 1 else f", selectivity={sends!r}"


def _lines(brackets: str, items: Sequence[str]) -> str:
    """Return a tuple or a mapping as code, a line per item."""
    return f"{brackets[0]}\n{''.join(f'    {item},' + chr(10) for item in items)}{brackets[1]}"


_TAKEN = frozenset(
    {"Operator", "Plant", "Service", "Topology", "apps", "costs", "edges", "graph", "history", "load", "operators"}
    | {"run", "target_latency_s", "workload"}
)  # names in the code of an application
_LOADS: Mapping[str, Callable[[float, float], Workload]] = {
    "one step": lambda low, high: Jump(low, high, 300.0),
    "constant": lambda low, high: Constant(high),
    "wave": lambda low, high: Sine((low + high) / 2, (high - low) / 2, 600.0),
    "square": lambda low, high: Square(low, high, 600.0),
}


@dataclass
class _Costs:
    """The controls of one operator."""

    milliseconds: Any
    sends: Any
    most: Any

    def of(self, name: str) -> tuple[Operator, Service]:
        return (
            Operator(name, max_parallelism=self.most.value),
            Service(self.milliseconds.value / 1000, selectivity=self.sends.value),
        )


class OwnApp:
    """A form for an application of your own: its graph, what its operators cost, and its load; it prints its code.

    Display it, or drive it from code.

    Parameters
    ----------
    graph : str
        Its graph as chains, one per line: "read > parse > store".

    Examples
    --------
    >>> form = OwnApp("read > parse > store")
    >>> form.costs["parse"].milliseconds.value = 4.0
    >>> form.app.plant.services["parse"].seconds_per_record
    0.004
    >>> form.open(windows=3, speed=0).start()
    """

    def __init__(self, graph: str = "read > parse > store"):
        self._errors = Errors()
        guard = self._errors.guard
        text: dict[str, Any] = dict(style=_WIDE, layout=_ROW)
        self.name = w.Text("my_job", description="name", tooltip="name of the application", **text)
        self.graph = w.Textarea(
            graph,
            description="graph",
            rows=4,
            continuous_update=False,
            tooltip="who sends to whom: one chain per line; an operator may be in several",
            **text,
        )
        self.costs: dict[str, _Costs] = {}
        self._rows = w.VBox()
        self.shape = w.Dropdown(options=list(_LOADS), description="load", tooltip="how the rate changes", **text)
        number: dict[str, Any] = dict(min=0.0, max=1e9, **text)
        self.low = w.BoundedFloatText(200.0, description="from, records/s", tooltip="least rate", **number)
        self.high = w.BoundedFloatText(600.0, description="to, records/s", tooltip="greatest rate", **number)
        self.target = w.BoundedFloatText(
            0.5, min=1e-3, max=1e4, description="target, s", tooltip="the latency to aim at", **text
        )
        self._code = w.HTML()
        self.button = w.Button(
            description="Open in the Explorer",
            button_style="primary",
            layout={"width": "auto", "align_self": "flex-start"},
            tooltip="a view of this application, below: any policy, simulated or live on Spark",
        )
        self.button.on_click(guard("view", lambda _: self.open()))
        self._below = w.VBox()
        self.explorer: Explorer | None = None
        for widget in (self.name, self.shape, self.low, self.high, self.target):
            widget.observe(guard("form", lambda _: self._show()), "value")
        self.graph.observe(guard("form", lambda _: self._graphed()), "value")
        self.box = w.VBox(
            [
                self.name,
                heading("Who sends to whom"),
                self.graph,
                heading("What its operators cost"),
                self._rows,
                heading("The load"),
                self.shape,
                self.low,
                self.high,
                self.target,
                self._errors.widget,
                self._code,
                self.button,
                self._below,
            ]
        )
        self.box.add_class("dspkit")
        self._graphed()

    def _graphed(self) -> None:
        """Show a row for each operator of the graph; what was set of one that stays, stays."""
        topology = read_graph(self.graph.value)
        self.costs = {name: self.costs.get(name) or self._costs(name) for name in topology.order}
        self._rows.children = tuple(
            w.HBox([each.milliseconds, each.sends, each.most], layout={"flex_flow": "row wrap"})
            for each in self.costs.values()
        )
        self._show()

    def _costs(self, name: str) -> _Costs:
        long: dict[str, Any] = dict(style=_WIDE, layout={"width": "250px"})
        short: dict[str, Any] = dict(style={"description_width": "80px"}, layout={"width": "170px"})
        made = _Costs(
            w.BoundedFloatText(
                1.0, min=1e-4, max=1e6, step=0.1, description=f"{name}, ms", tooltip=f"{name}: time per record", **long
            ),
            w.BoundedFloatText(
                1.0,
                min=0.0,
                max=1e4,
                step=0.1,
                description="sends",
                tooltip=f"{name}: records that it sends per record that it processes",
                **short,
            ),
            w.BoundedIntText(64, min=1, max=1000, description="at most", tooltip=f"{name}: most instances", **short),
        )
        for widget in (made.milliseconds, made.sends, made.most):
            widget.observe(self._errors.guard("form", lambda _: self._show()), "value")
        return made

    @property
    def app(self) -> App:
        """The application as the form has it now."""
        name, low, high = self.name.value.strip(), self.low.value, self.high.value
        if not re.fullmatch(r"[A-Za-z]\w{0,60}", name, re.ASCII) or iskeyword(name):
            raise ArgumentError(
                f"the name {name!r:.80}", expected="a name in Python: letters, digits and _", fix="as in my_job"
            )
        if name in _TAKEN:
            raise ArgumentError(
                f"the name {name!r}", expected="one that the printed code does not use itself", fix=f"as in {name}_job"
            )
        if high < low or not high:
            raise ArgumentError(
                f"a load from {low:g} to {high:g} records/s", expected="from the lower to the higher", fix="swap them"
            )
        made = {each: costs.of(each) for each, costs in self.costs.items()}
        topology = Topology(tuple(made[each][0] for each in made), read_graph(self.graph.value).edges)
        load = _LOADS[self.shape.value](low, high)
        services = {each: service for each, (_, service) in made.items()}
        return App(name, topology, Plant(services), load, target_latency_s=self.target.value)

    def code(self) -> str:
        """Return the code that makes the application.

        Examples
        --------
        >>> print(OwnApp("read > store").code())
        from dspkit import Operator, Plant, Topology, apps, run, workload
        from dspkit.simulator import Service
        <BLANKLINE>
        operators = (
            Operator('read'),
            Operator('store'),
        )
        edges = (
            ('read', 'store'),
        )
        costs = {
            'read': Service(0.001),
            'store': Service(0.001),
        }  # seconds per record
        load = workload.Jump(before_per_s=200.0, after_per_s=600.0)
        graph = Topology(operators, edges)
        target_latency_s = 0.5
        my_job = apps.App('my_job', graph, Plant(costs), load, target_latency_s)
        history = run('ds2', my_job, steps=60)
        """
        app = self.app
        operators = [
            f"Operator({o.name!r}{f', max_parallelism={o.max_parallelism}' if o.max_parallelism != 64 else ''})"
            for o in app.topology.operators
        ]
        services = [
            f"{name!r}: Service({costs.milliseconds.value / 1000!r}{_selectivity(costs.sends.value)})"
            for name, costs in self.costs.items()
        ]
        assert isinstance(app.workload, Workload)
        return (
            "from dspkit import Operator, Plant, Topology, apps, run, workload\n"
            "from dspkit.simulator import Service\n\n"
            f"operators = {_lines('()', operators)}\n"
            f"edges = {_lines('()', [repr(edge) for edge in app.topology.edges])}\n"
            f"costs = {_lines('{}', services)}  # seconds per record\n"
            f"load = {load_code(app.workload)}\n"
            "graph = Topology(operators, edges)\n"
            f"target_latency_s = {app.target_latency_s!r}\n"
            f"{app.name} = apps.App({app.name!r}, graph, Plant(costs), load, target_latency_s)\n"
            f"history = run('ds2', {app.name}, steps=60)"
        )

    def open(self, policy: Any = "ds2", **settings: Any) -> Explorer:
        """Show the application in an Explorer below the form, and return it.

        Parameters
        ----------
        policy : str, type or Policy
            The policy to begin with.
        **settings
            Settings of the Explorer.

        Examples
        --------
        >>> OwnApp().open("static").settings.app
        'my_job'
        """
        made = Explorer(self.app, policy, **settings)
        self._below.children = (made.view.box,)
        self.explorer = made
        return made

    @property
    def error(self) -> str:
        """The errors that the view shows, as HTML; empty without any."""
        return str(self._errors)

    def _show(self) -> None:
        self._code.value = f"<b>The application as code</b><pre>{escape(self.code())}</pre>"

    def _ipython_display_(self) -> None:
        show_beside(self, None, self.box)
