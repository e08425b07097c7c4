"""Datasets renumbered for a tokenizer that was trimmed from their own."""
