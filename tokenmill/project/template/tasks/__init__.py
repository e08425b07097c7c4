"""The Prefect tasks of this project, one module per stage. Each module maps a task over the work units of its stage, in batches."""
