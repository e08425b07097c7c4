"""Tokenizers described, and written in the file formats of other programs."""
