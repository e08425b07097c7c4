"""Prefect's server: found, started and watched."""
