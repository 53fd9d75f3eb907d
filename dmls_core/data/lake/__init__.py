"""Delta Lake and Iceberg tables at one version."""
