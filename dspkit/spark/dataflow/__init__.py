"""The dataflow in Spark tasks: the plan of stages, records in frames, keyed state and checkpoints."""
