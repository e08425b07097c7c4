"""The files that accompany a tokenizer: golden vectors and a model card."""
