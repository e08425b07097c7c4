"""What a build's tokenizer and dataset measure, and the gates that they must pass."""
