"""The files of a token dataset and their manifest."""
