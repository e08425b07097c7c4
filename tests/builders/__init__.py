"""What several test modules build their tests from."""
