"""HTML pages of what the services return."""
