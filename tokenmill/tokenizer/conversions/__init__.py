"""What projects of 0.3 import; it stays until 1.0."""
