"""Makes a project, and checks one."""
