"""Measures a build's tokenizer and dataset, and checks the gates that they must pass."""
