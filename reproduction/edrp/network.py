"""A portion of ANSNET, on which the thesis runs its taxi query (chapter 8) [nardelli].

The thesis does not print the 15 nodes of its portion of ANSNET, nor their delays. `ansnet` takes the map of the
Internet Topology Zoo [knight2011], with 18 cities and 25 links: without Hawaii, and with San Jose and Reston merged
with San Francisco and Washington, 67 and 28 km away, 15 cities are left. The delay of a link is proportional to its
great circle, a logical link is the shortest path, and all delays are scaled to the printed mean of 32 ms.
`dspkit.placement.datasets.backbone` draws random networks instead.
"""

from __future__ import annotations

import numpy as np

from dspkit.core import PlacementError
from dspkit.core.validation import number
from dspkit.placement import Network

CITIES = {  # latitude and longitude in degrees
    "Seattle": (47.61, -122.33), "San Francisco": (37.77, -122.42), "Los Angeles": (34.05, -118.24),
    "Albuquerque": (35.08, -106.65), "Denver": (39.74, -104.98), "Houston": (29.76, -95.36), "Dallas": (32.78, -96.81),
    "St Louis": (38.63, -90.20), "Chicago": (41.85, -87.65), "Cleveland": (41.50, -81.70), "Atlanta": (33.75, -84.39),
    "Greensboro": (36.07, -79.79), "Washington": (38.90, -77.04), "New York": (40.71, -74.01),
    "Hartford": (41.76, -72.69),
}  # fmt: skip
LINKS = (
    ("Seattle", "San Francisco"), ("Seattle", "Denver"), ("San Francisco", "Denver"), ("San Francisco", "Los Angeles"),
    ("San Francisco", "Dallas"), ("Los Angeles", "Albuquerque"), ("Albuquerque", "Houston"), ("Denver", "Chicago"),
    ("Houston", "Dallas"), ("Houston", "Atlanta"), ("Dallas", "St Louis"), ("Dallas", "Washington"),
    ("St Louis", "Chicago"), ("St Louis", "Washington"), ("Chicago", "Cleveland"), ("Cleveland", "New York"),
    ("Cleveland", "Hartford"), ("Atlanta", "Greensboro"), ("Greensboro", "Washington"), ("Washington", "New York"),
    ("New York", "Hartford"),
)  # fmt: skip


def ansnet(*, mean_s: float = 0.032, capacity: float = 2.0) -> Network:
    """Return the network of fifteen nodes, named by their cities.

    >>> network = ansnet()
    >>> far = network.delay_s[network.index["Los Angeles"]]
    >>> [round(1000 * float(far[network.index[city]]), 1) for city in ("San Francisco", "Houston", "New York")]
    [7.7, 31.4, 63.7]
    """
    from scipy.sparse.csgraph import shortest_path

    number(mean_s, "mean_s", 0, above=True, error=PlacementError)
    names = tuple(CITIES)
    latitude, longitude = np.radians(list(CITIES.values())).T
    east = longitude[:, None] - longitude
    cosine = np.sin(latitude[:, None]) * np.sin(latitude) + np.cos(latitude[:, None]) * np.cos(latitude) * np.cos(east)
    linked = np.zeros((len(names), len(names)))
    for a, b in LINKS:
        i, j = names.index(a), names.index(b)
        linked[i, j] = linked[j, i] = np.arccos(cosine[i, j])
    delay = shortest_path(linked, method="D", directed=False)
    delay = np.minimum(delay, delay.T)  # the two directions differ by rounding
    delay *= mean_s / delay[~np.eye(len(names), dtype=bool)].mean()
    return Network(names, delay, capacity)


def on_the_way(network: Network, a: str, b: str) -> int:
    """Return the number of nodes, both ends among them, on shortest paths from a to b.

    >>> on_the_way(ansnet(), "Greensboro", "Los Angeles")  # Atlanta, Houston, Albuquerque
    5
    """
    u, v = network.index[a], network.index[b]
    return int(np.isclose(network.delay_s[u] + network.delay_s[:, v], network.delay_s[u, v], rtol=1e-9).sum())
