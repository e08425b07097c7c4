"""Finds, starts and watches Prefect's server."""
