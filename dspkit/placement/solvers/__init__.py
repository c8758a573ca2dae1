"""Exact placement: our own search, HiGHS on the integer program, and exhaustive search."""
