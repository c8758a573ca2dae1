"""The sections of docs/reproduction.md, a module each: what takes time, and how its results are shown."""
