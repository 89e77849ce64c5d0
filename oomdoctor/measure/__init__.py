"""A training step under TensorFlow's real allocator: its peak, and what holds it."""
