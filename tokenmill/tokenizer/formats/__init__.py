"""The file formats of a tokenizer. The readers treat every file as untrusted."""
