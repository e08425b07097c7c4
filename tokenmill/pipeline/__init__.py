"""One build of one project."""
