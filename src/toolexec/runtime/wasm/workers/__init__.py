"""Worker processes for guests: one for each core, so that guests do not interrupt each other's page faults."""
