"""The recipes: what a build does, from top to bottom."""
