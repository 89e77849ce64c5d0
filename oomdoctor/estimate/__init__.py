"""Predicts the peak memory of a Keras step without running it.

The step is traced (`keras_model`), read as plain nodes (`graph`), brought into the form TensorFlow
runs (`simplify`, `ordering`, `loops`), executed without computing (`executor`, `shapes`,
`kernels`), and its allocations are replayed through a model of the allocator (`bfc`, `step`).
"""
