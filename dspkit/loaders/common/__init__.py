"""The common parts of loaders: units, names of metrics, time series, windows, files and HTTP."""
