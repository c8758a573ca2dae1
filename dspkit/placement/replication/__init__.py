"""Replication and placement in one step (ODRP), and over time with the cost of changes (EDRP)."""
