"""Tokenizers in the files of other programs: llama.cpp, mistral-common, SentencePiece and GPT-2."""
