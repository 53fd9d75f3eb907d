"""DMLS: tuned, validated, served models in Airflow from a TOML spec and a CSV."""

__version__ = "0.1.0"
