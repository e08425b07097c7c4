"""The files of a tokenizer, read with distrust."""
