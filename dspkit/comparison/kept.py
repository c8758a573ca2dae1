"""Finished rows in a folder: Parquet files, each written whole or not at all, that a later sweep goes on from."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import files
from ..errors import FileError
from .runs import KEYS, SCORES

if TYPE_CHECKING:
    import pandas as pd

EVERY_S, AT_MOST = 2.0, 200  # a file holds what came in this time, or so many rows


class Kept:
    """The rows of a folder by the fingerprints of their runs; without a folder, those of this sweep alone."""

    def __init__(self, folder: str | Path | None):
        if folder is not None and not isinstance(folder, (str, Path)):
            raise FileError(f"folder={folder!r}", expected="a folder's path", fix="as in 'runs/compare'")
        self.folder = None if folder is None else Path(folder).absolute()
        self.rows: dict[str, dict[str, Any]] = {}
        self._new: dict[str, dict[str, Any]] = {}
        self._known: set[Path] = set()  # files whose rows are here: another sweep may write more
        self._saved = time.monotonic()
        if self.folder is not None:
            if self.folder.exists() and not self.folder.is_dir():
                raise FileError(f"{folder}, a file", expected="a folder to keep rows in", fix="choose another name")
            for path in self._files():
                self._read(path)

    def add(self, key: str, row: Mapping[str, Any]) -> None:
        """One row more; a run that failed is not kept for later: it is tried again."""
        self.rows[key] = dict(row)
        if self.folder is None or row["error"]:
            return
        self._new[key] = dict(row)
        if len(self._new) >= AT_MOST or time.monotonic() - self._saved > EVERY_S:
            self.save()

    def save(self) -> None:
        """Write what is not written yet, as one more file."""
        self._saved = time.monotonic()
        if self._new and self.folder is not None:
            self._write(self._new)
            self._new = {}

    def together(self) -> None:
        """Put all files into one, but those that another sweep has written meanwhile."""
        self.save()
        if len(former := sorted(self._known)) < 2:
            return
        self._write({key: row for key, row in self.rows.items() if not row["error"]})
        for path in former:
            path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("rows-*.parquet")) if self.folder is not None else []

    def _write(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        assert self.folder is not None
        table = frame(rows.values())
        table.insert(0, "run", list(rows))
        path = self.folder / f"rows-{secrets.token_hex(8)}.parquet"
        files.write(path, lambda partial: table.to_parquet(partial, index=False))
        self._known.add(path)

    def _read(self, path: Path) -> None:
        import pandas as pd

        try:
            table = pd.read_parquet(path)
        except FileNotFoundError:
            return  # another sweep has just put it together with others
        except (OSError, ValueError) as error:
            raise FileError(f"{path}: {error}", expected="rows of a sweep", fix="delete the file") from error
        if missing := [c for c in ("run", *KEYS, "error") if c not in table]:
            raise FileError(f"{path} without {missing}", expected="rows of a sweep", fix="choose another folder")
        for row in table.to_dict("records"):
            plain = {str(k): None if v != v else v for k, v in row.items()}
            self.rows[str(plain.pop("run"))] = plain
        self._known.add(path)


def frame(rows: Any) -> pd.DataFrame:
    """Rows as a table with all columns, each of one type whatever the rows hold."""
    import pandas as pd

    table = pd.DataFrame(list(rows), columns=[*KEYS, *SCORES, "error"])
    words = [k for k in KEYS if k != "seed"]
    kinds = dict.fromkeys(words, "object") | {"seed": "int64"} | dict.fromkeys(SCORES, "float64") | {"error": "object"}
    return table.astype(kinds)
