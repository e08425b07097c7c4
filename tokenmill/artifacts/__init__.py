"""What accompanies a tokenizer and a dataset: golden vectors, a model card, and a dataset card."""
