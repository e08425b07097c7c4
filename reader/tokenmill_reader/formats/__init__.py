"""The file formats of a token dataset, as far as they are needed to read them: a module for each."""
