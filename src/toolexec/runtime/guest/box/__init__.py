"""The guest of containers: runs Python itself, bash, JavaScript and Go with what the image has for them.

Standard library only, and nothing newer than Python 3.9. What is imported before the first program runs counts: modules
such as `json` and `threading` take longer to import than all of the guest.
"""
