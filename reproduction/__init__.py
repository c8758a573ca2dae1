"""Reproductions of the papers' evaluations: one folder per paper with its study, its results and its prose.

`python -m reproduction` generates docs/reproduction.md from them.
"""
