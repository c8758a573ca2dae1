"""Sources of live jobs: a trace, growing files, Kafka topics and Redis streams."""
