"""The fluid engines: rates in ticks, for any load; pipelined (`engine`) and in micro-batches (`microbatch`)."""
