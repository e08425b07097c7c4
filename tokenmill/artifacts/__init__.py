"""What a tokenizer is shipped with: golden vectors and a model card."""
