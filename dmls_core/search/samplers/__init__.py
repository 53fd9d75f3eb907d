"""Samplers and pruners: each strategy of ``[search] strategy`` is one class."""
