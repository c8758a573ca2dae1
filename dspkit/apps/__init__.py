"""Applications for live Spark: small, with real functions, and a service time that can be set."""
