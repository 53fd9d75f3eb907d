"""What the page and the REST API do; no module here knows of routes or templates."""
