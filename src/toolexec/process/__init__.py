"""Processes of the host: children, their trees, pipes, limits and private files; shared by whatever starts one."""
