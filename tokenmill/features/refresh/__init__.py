"""A dataset brought up to date with new documents, published as its next version, and people told of what failed."""
