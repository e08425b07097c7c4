"""The file sets of a dataset: splits, mixture, order and packing of its documents."""
