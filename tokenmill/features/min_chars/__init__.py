"""source.min_chars: short documents are left out."""
