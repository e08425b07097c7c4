"""Learns merges from counts."""
