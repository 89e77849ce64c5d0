"""A Keras model as another process can rebuild it, and what it is fed."""
