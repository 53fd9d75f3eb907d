"""The intake DAG, and the triggers that watch for what it takes in."""
