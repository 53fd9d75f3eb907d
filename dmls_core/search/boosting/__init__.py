"""Search of boosted trees, which also yields the scores of all smaller numbers of rounds."""
