"""The commands that have to do with configuration, as one small program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import typer
from typer.testing import CliRunner, Result

from toolexec.cli.client_config import client_config
from toolexec.cli.config_command import config
from toolexec.cli.init import init
from toolexec.cli.options import AsJson, Config
from toolexec.cli.serve import serve

program = typer.Typer(pretty_exceptions_enable=False)


@program.callback()
def shared(context: typer.Context, files: Config = None, as_json: AsJson = False) -> None:
    """Options before the command's name."""
    context.obj = (tuple(files or ()), as_json)


program.add_typer(config, name="config")
program.command()(init)
program.command()(serve)
program.command("client-config")(client_config)

Call = Callable[..., Result]
COMMAND = [sys.executable, str(Path(__file__).resolve())]
"""Starts the program in a process of its own."""


def call(*words: object, **environment: str | None) -> Result:
    """Run a command in this process."""
    return CliRunner(env=environment).invoke(program, [str(word) for word in words])


if __name__ == "__main__":
    program()
