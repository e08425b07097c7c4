"""Pre-tokens counted, spilled to disk and merged."""
