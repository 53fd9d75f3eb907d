"""Serving formats: what is exported, how it is checked, and which Triton backend loads it."""
