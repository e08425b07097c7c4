"""What each stage does; the orchestrator is unknown here."""
