"""Side by side with other tools; every answer is checked before its time counts."""
