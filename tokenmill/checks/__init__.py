"""The checks of a token dataset against its manifest, its tokenizer and its documents."""
