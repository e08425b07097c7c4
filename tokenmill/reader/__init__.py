"""Token datasets read for a training job: items of one split in one order, shared by ranks."""
