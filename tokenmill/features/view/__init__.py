"""A page that shows a token dataset, for one person on one machine."""
