"""The work of each stage, independent of the orchestrator."""
