"""Atomic writes, links, locks, and stored facts about files."""
