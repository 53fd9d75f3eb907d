"""Real servers that tests start, as pytest plugins."""
