"""Triton's model repository in a folder or S3: versions, options, locks and intents."""
