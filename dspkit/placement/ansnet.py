"""ANSNET, of whose backbone chapters 6 and 8 of the thesis take "a portion" of 15 nodes [nardelli].

Which 15, and how far apart, is not printed. Here they are the cities and links of the Internet Topology Zoo's map of
ANS [knight2011], 18 and 25: without Hawaii, and with San Jose and Reston counted as San Francisco and Washington, which
are 67 and 28 km away, 15 are left. A link takes as long as its great circle is, a logical link is the shortest way, and
all is scaled so that two nodes are 32 ms apart on average, which is printed.
"""

from __future__ import annotations

import numpy as np

from .arrays import number
from .problem import Network

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
    """The fifteen nodes, named by their cities.

    >>> network = ansnet()
    >>> far = network.delay_s[network.index["Los Angeles"]]
    >>> [round(1000 * float(far[network.index[city]]), 1) for city in ("San Francisco", "Houston", "New York")]
    [7.7, 31.4, 63.7]
    """
    from scipy.sparse.csgraph import shortest_path

    number(mean_s, "mean_s", open_low=True)
    names = tuple(CITIES)
    latitude, longitude = np.radians(list(CITIES.values())).T
    east = longitude[:, None] - longitude
    cosine = np.sin(latitude[:, None]) * np.sin(latitude) + np.cos(latitude[:, None]) * np.cos(latitude) * np.cos(east)
    linked = np.zeros((len(names), len(names)))
    for a, b in LINKS:
        i, j = names.index(a), names.index(b)
        linked[i, j] = linked[j, i] = np.arccos(cosine[i, j])
    delay = shortest_path(linked, method="D", directed=False)
    delay = np.minimum(delay, delay.T)  # the two ways differ by rounding
    delay *= mean_s / delay[~np.eye(len(names), dtype=bool)].mean()
    return Network(names, delay, capacity)


def on_the_way(network: Network, a: str, b: str) -> int:
    """How many nodes, both ends among them, one can pass from a to b without being later for it.

    >>> on_the_way(ansnet(), "Greensboro", "Los Angeles")  # Atlanta, Houston, Albuquerque
    5
    """
    u, v = network.index[a], network.index[b]
    return int(np.isclose(network.delay_s[u] + network.delay_s[:, v], network.delay_s[u, v], rtol=1e-9).sum())
