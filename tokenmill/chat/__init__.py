"""Conversations: rendered by a chat template, encoded, and masked."""
