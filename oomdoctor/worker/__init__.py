"""What runs in the process that owns TensorFlow."""
