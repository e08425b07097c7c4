"""The manifest of a token dataset, its tables, and its document index."""
