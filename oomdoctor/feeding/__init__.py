"""Data that stays on disk: read in blocks, fed in batches, in memory that does not grow with it."""
