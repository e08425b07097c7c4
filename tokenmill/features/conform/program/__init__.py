"""The program that is shipped with a tokenizer, and compares the ids that other libraries give."""
