"""HTML pages; they show what the services return."""
