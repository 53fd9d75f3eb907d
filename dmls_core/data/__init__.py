"""Read, encode, split and validate data."""
