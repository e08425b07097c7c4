"""The tasks of this project, a module a stage: each finds the units of its stage, maps a task over them, and collects."""
