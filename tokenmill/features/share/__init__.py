"""Datasets copied to object storage, a hub or another folder, fetched from there, and removed there."""
