"""A training step compiled by XLA for a card that need not be there."""
