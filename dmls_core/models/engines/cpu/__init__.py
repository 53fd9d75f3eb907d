"""Engines on the CPU: scikit-learn, XGBoost, LightGBM."""
