"""Inventory → Footprint; arithmetic only."""
