"""Split patterns and their form in tokenizer.json."""
