"""Encoding text to token ids, and decoding ids to text."""
