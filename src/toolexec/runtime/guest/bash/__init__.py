"""The guest for bash: a Python program that runs bash and brings its tool calls to the host.

In the script `tool` is a command; `tool help` says what it can do.
"""
