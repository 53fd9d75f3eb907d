"""Engines on an NVIDIA GPU: cuML and XGBoost on CUDA. Only the modules here name cuml, cudf or cupy."""
