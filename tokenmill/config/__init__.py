"""What a project asks for, and what it pins."""
