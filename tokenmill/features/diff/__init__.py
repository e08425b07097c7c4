"""Two tokenizers or two datasets, compared."""
