"""A folder, a file or a live object → Inventory, reading headers rather than data."""
