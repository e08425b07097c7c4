"""Counts pre-tokens, spills counts to disk and merges them."""
