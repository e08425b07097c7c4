"""A project made and examined."""
