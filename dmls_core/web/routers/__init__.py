"""REST API: JSON below ``/dmls/api/v1``."""
