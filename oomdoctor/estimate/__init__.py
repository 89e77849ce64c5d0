"""Predict the peak memory of a Keras training step without running it."""
