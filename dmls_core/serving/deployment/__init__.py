"""Deploy, verify, sign and reconcile models."""
