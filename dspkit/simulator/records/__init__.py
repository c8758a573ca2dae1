"""The record-level engines: discrete-event simulations of every record, pipelined (`engine`) and in micro-batches."""
