"""Images without a registry: built, imported, kept as root file systems, and handed to engines as one archive."""
