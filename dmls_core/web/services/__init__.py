"""Services behind the page and the REST API; no module here knows of routes or templates."""
