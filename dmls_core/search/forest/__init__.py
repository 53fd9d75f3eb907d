"""Nested search of forests: one large forest also yields the scores of all smaller ones."""
