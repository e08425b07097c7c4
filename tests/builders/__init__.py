"""What several test modules build their tests of."""
