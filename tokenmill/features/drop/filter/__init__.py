"""The filter of source.drop, which decides bytes of the stages that read documents."""
