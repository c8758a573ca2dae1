"""Tables of the papers, made again: `python -m dspkit.reproduce.NAME` prints each beside the printed numbers."""
