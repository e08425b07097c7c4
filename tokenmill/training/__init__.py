"""Counts to merges."""
