"""The largest batch that fits: where to look, what was run, and what it means."""
