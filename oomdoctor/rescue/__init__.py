"""Training that continues after an out-of-memory error."""
