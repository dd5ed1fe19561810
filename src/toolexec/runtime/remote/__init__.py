"""What settings say of sandboxes of other machines: where they are, the keys, and how a server lends them.

The package toolexec-remote does the rest.
"""
