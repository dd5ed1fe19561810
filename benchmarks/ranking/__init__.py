"""A catalogue of tools as real services have them, and queries labelled with the tools that answer them."""
