"""Reads files of documents in batches."""
