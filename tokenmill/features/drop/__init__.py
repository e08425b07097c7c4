"""What is left of documents that source.drop names: the list itself is in corpus/."""
