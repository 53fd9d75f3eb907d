"""Search strategies: samplers and pruners."""
