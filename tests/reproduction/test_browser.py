"""The notebook's view of the ledger: filters, text that cannot be markup, and a row made again in a process."""

import time

import pytest

from reproduction import browser, ledger
from reproduction.browser import LedgerBrowser, chosen


def test_rows_are_filtered():
    everything = ledger.everything()
    assert chosen() == everything
    stela = chosen("Stela")
    assert {row.paper for row in stela} == {"Stela"}
    near, far = chosen("Stela", nearness="within twice"), chosen("Stela", nearness="farther")
    assert len(near) + len(far) == sum(row.factor is not None for row in stela)
    assert all(0.5 <= row.factor <= 2 for row in near)
    assert {row.kind for row in chosen("all", "fitted")} == {"fitted"}


def test_the_view_follows_its_menus_and_escapes_text(monkeypatch):
    view = LedgerBrowser("Stela", "missed")
    assert len(view.rows.options) == len(chosen("Stela", "missed"))
    assert "--only stela" in view.said.value
    view.paper.value, view.kind.value = "ELYSIUM", "not modelled"
    assert view.make.disabled
    assert "not modelled" in view.said.value
    row = ledger.everything()[0]._replace(what="<b>", why="<script>", paper="Stela", kind="missed")
    monkeypatch.setattr(ledger, "everything", lambda: [row])
    view.paper.value, view.kind.value = "Stela", "missed"
    assert "&lt;script&gt;" in view.table.value
    assert "<script>" not in view.table.value
    view.kind.value = "exact"
    assert view.row is None
    assert view.make.disabled


@pytest.mark.slow
def test_a_row_is_made_again_and_a_broken_one_says_so(monkeypatch):
    view = LedgerBrowser("AuTraScale", "exact")
    view.make.click()
    until(view, "made again just now")
    assert f"<b>{ledger.shown(view.row)}</b>" in view.said.value.partition("just now")[2]
    view.make.click()
    view.stop.click()
    until(view, "stopped")
    bad = view.row._replace(key="{worked:nothing}")
    monkeypatch.setattr(browser.LedgerBrowser, "row", property(lambda self: bad))
    view.make.click()
    until(view, "dspkit-error")


def until(view, said, seconds=60.0):
    end = time.monotonic() + seconds
    while said not in view.said.value and time.monotonic() < end:
        time.sleep(0.05)
    assert said in view.said.value
