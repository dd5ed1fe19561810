"""The workflow language: tools, values and control flow in a small program that is checked before it runs."""
