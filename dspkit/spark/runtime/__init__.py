"""The runtime of a live job: engines, supervision, flow control, workers, the session and its Java."""
