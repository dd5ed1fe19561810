"""The tools that the server itself offers: find, read, run, chain, code."""
