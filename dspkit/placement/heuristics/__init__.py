"""Heuristic placement: greedy, local search, decomposition, and decentralised placement."""
