"""Files of documents to batches of documents."""
