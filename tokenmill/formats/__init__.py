"""The file formats of a token dataset, a module for each; table.py has those of `encode.formats` by their names."""
