"""Files that are whole or absent, and what is known of them."""
