"""Stock queries: Structured Streaming queries of other programs, observed, diagnosed and changed while they run."""
