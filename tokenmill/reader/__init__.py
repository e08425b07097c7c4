"""The place where the reader was before it became the package tokenmill_reader."""
