"""A runner of the command line that makes the commands of an application once, and those commands.

Typer's own makes all of them for each call, which took four fifths of the time of a test here.
"""

from __future__ import annotations

from functools import cache

from typer import testing
from typer.testing import CliRunner, Result

__all__ = ["CliRunner", "Result", "commands_of"]

commands_of = testing._get_command = cache(testing._get_command)
