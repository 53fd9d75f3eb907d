"""What Triton's Python backend loads for the table endpoint ``<team>.<job>.table``; it imports no DMLS."""
