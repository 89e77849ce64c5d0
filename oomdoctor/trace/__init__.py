"""Allocation events of one step → what held the memory at its peak."""
