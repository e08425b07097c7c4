"""Runs one build of one project."""
