"""What a build would do and cost, found without running it."""
