"""Drift, delayed labels, the inference log, metrics for Prometheus, and the run that uses them all."""
