"""What tests of several kinds share: makers of data, models and runs, and small servers."""
