"""Reports about tokenizers and datasets."""
