"""What runs in the calling process, and talks to the worker."""
