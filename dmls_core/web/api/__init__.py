"""REST API of the page: JSON, below ``/api/v1``."""
