"""`python -m dspkit`: one line of what was done, or one line of what was wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import dspkit
from dspkit import apps
from dspkit.__main__ import main
from dspkit.core import History
from dspkit.policies.ds2 import DS2
from dspkit.report import kernel
from dspkit.report.notebook import execute as execute_notebook


@pytest.fixture
def notebook(tmp_path):
    def notebook(*sources):
        cells = [new_markdown_cell("# Title"), *map(new_code_cell, sources)]
        nbformat.write(new_notebook(cells=cells), tmp_path / "n.ipynb")
        return str(tmp_path / "n.ipynb")

    return notebook


def test_a_report_of_a_notebook(notebook, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DSPKIT_HOME", str(tmp_path))
    assert main(["report", notebook("print('some words')")]) == 0
    said = capsys.readouterr()
    path = Path(said.out.split(" (")[0])
    assert path.parent == tmp_path / "reports"
    assert "some words" in path.read_text()
    assert " MB, in " in said.out
    assert said.err == ""


def test_a_report_of_a_saved_run(tmp_path, capsys):
    app = apps.word_count()
    saved = dspkit.run(DS2(), app.simulator(), steps=3).save(tmp_path / "h.parquet")
    out = tmp_path / "sub" / "r.html"
    assert main(["report", str(saved), "--out", str(out)]) == 0
    assert "A run of DS2" in out.read_text()
    assert capsys.readouterr().out.startswith(f"{out} (")
    assert main(["report", str(saved), "--out", str(out)]) == 2
    assert main(["report", str(saved), "--out", str(out), "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "none.ipynb"], "no file none.ipynb"),
        (["report", "none.parquet"], "no file none.parquet"),
        (["report", __file__], "not a notebook"),
        (["cite", "stella"], "did you mean 'stela'"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_an_error_in_a_notebook_is_one_line_with_its_source(notebook, tmp_path, capsys):
    assert main(["report", notebook("a = {}\na['key']"), "--out", str(tmp_path / "r.html")]) == 2
    said = capsys.readouterr().err
    assert "KeyError: 'key' in cell 2" in said
    assert "a = {} a['key']" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [CellExecutionError("traceback", "KeyboardInterrupt", ""), CellTimeoutError(), DeadKernelError(), TimeoutError()],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_kernel_that_is_being_ended_fails_with_it_was_stopped(notebook, monkeypatch, error):
    def execute(client, **_):
        client._async_cleanup_kernel_future = None  # as nbclient sets it when a signal comes
        raise error

    monkeypatch.setattr(kernel.Client, "execute", execute)
    with pytest.raises(KeyboardInterrupt):
        execute_notebook(notebook("1"))


@pytest.mark.skipif(sys.platform == "win32", reason="signals are of POSIX")
def test_ctrl_c_ends_the_kernel_too(notebook, tmp_path):
    source = "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(600)"
    command = [sys.executable, "-m", "dspkit", "report", notebook(source), "--out", str(tmp_path / "r.html")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        pid = tmp_path / "pid"
        while not (pid.exists() and pid.read_text()):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[1]
    assert (process.returncode, said) == (130, "dspkit: stopped\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert not (tmp_path / "r.html").exists()


def test_citations(capsys):
    assert main(["cite", "stela", "fission"]) == 0
    assert capsys.readouterr().out == f"{dspkit.cite(['stela', 'fission'])}\n"
    assert main(["cite"]) == 0
    assert capsys.readouterr().out == f"{dspkit.cite()}\n"


def test_help_without_arguments(capsys):
    assert main([]) == 0
    said = capsys.readouterr().out
    assert "report" in said
    assert "cite" in said


def test_as_a_module():
    def run(*arguments):
        return subprocess.run([sys.executable, "-m", "dspkit", *arguments], capture_output=True, text=True, check=False)

    assert run("--version").stdout == f"dspkit {dspkit.__version__}\n"
    wrong = run("cite", "nothing-like-it")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("dspkit: got reference")
    assert "Traceback" not in wrong.stderr
    assert run("report").returncode == 2


def test_a_run_is_written_for_others_to_watch_and_compared(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DSPKIT_HOME", str(tmp_path))
    assert main(["run", "--app", "star", "--policy", "DS2(activation=2)", "--windows", "4"]) == 0
    printed = capsys.readouterr().out
    (lines,) = (tmp_path / "runs").glob("*.jsonl")
    assert len(lines.read_text().splitlines()) == 4
    assert History.load(lines.with_suffix(".parquet")).about["policy"] == "DS2(activation=2)"
    assert main(["watch", str(tmp_path / "runs"), "--once"]) == 0
    watched = capsys.readouterr().out
    assert lines.stem in watched
    assert all(line in watched for line in printed.splitlines()[1:5])
    assert main(["compare", "ds2", "static", "--app", "star", "--windows", "3"]) == 0
    assert "windows above target, %" in capsys.readouterr().out


def test_lines_of_others_cannot_steer_the_terminal_and_a_half_written_one_waits(tmp_path, capsys):
    path = tmp_path / "x.jsonl"
    path.write_text('{"window": 1, "of": 2, "line": "\\u001b[31mred"}\nrubbish\n{"window": 2, "of": 2, "li')
    assert main(["watch", str(tmp_path), "--once"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "red" in printed
    assert "(a line that is not of a run)" in printed
    assert "2 of 2" not in printed
    assert main(["watch", str(tmp_path / "none")]) == 2


def test_watch_prints_the_whole_of_a_long_file_and_passes_a_line_without_end(tmp_path, capsys):
    lines = [json.dumps({"run": "r", "window": i, "of": 9000, "line": "x" * 300}) for i in range(1, 9001)]
    (tmp_path / "long.jsonl").write_text(
        "\n".join(lines[:8000]) + "\n" + "y" * 2_500_000 + "\n" + "\n".join(lines[8000:]) + "\n"
    )
    assert main(["watch", str(tmp_path), "--once"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [int(line[:4]) for line in printed if " of 9000 " in line] == list(range(1, 9001))


def test_watch_follows_a_run_of_another_process(tmp_path):
    """Its lines come while it runs: the first is printed before the last is written."""
    env = {**os.environ, "DSPKIT_HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    (tmp_path / "runs").mkdir()
    command = [sys.executable, "-m", "dspkit"]
    watch = subprocess.Popen([*command, "watch", str(tmp_path / "runs")], stdout=subprocess.PIPE, text=True)
    try:
        made = subprocess.Popen([*command, "run", "--app", "star", "--windows", "60", "--speed", "5"], env=env)
        for line in watch.stdout:
            if " 1 of 60" in line:
                assert made.poll() is None
                break
    finally:
        made.kill()
        watch.kill()
        made.wait()
        watch.wait()
        watch.stdout.close()


GRAPH = "read>parse>enrich>score>store,parse>sessions>store"
COLUMNS = {
    "t": "time",
    "operator": "task",
    "parallelism": "subtasks",
    "input_rate": "records_in_per_s",
    "processing_rate": "processed_per_s",
    "output_rate": "records_out_per_s",
    "utilisation": "busy_ms_per_s:ms/s",
    "backlog": "pending",
}


def test_advice_for_a_table_from_a_terminal(capsys):
    table = Path(__file__).parents[2] / "data" / "recorded_job.csv"
    columns = (f"{name}={told}" for name, told in COLUMNS.items())
    assert main(["advise", str(table), "--columns", *columns, "--graph", GRAPH, "--engine", "flink"]) == 0
    assert "bottleneck" in capsys.readouterr().out
    assert main(["advise", str(table), "--graph", "read>"]) == 2
