"""Token files and their manifest."""
