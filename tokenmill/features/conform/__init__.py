"""A tokenizer's ids compared in other libraries: by a command, by a program beside the tokenizer, and before a publication."""
