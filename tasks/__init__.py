"""The stages of a build: each finds its work units, does one at a time, and saves what they make."""
