"""Run a command within limits."""
