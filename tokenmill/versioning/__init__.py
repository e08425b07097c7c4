"""DVC, git, and the registry of published versions."""
