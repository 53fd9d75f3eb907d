"""Forests as Treelite checkpoints behind Triton's FIL backend."""
