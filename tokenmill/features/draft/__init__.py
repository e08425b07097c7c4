"""The most frequent tokens of a dataset, as a draft vocabulary for speculative decoding."""
