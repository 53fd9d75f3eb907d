"""The intake DAG, and the trigger that watches for submissions."""
