"""Tests of tokenmill.tokenizer.conversions."""
