"""The process of the `toolexec` command, which `python -m toolexec` is, too."""

from toolexec.cli.app import main
from toolexec.cli.ending import leave_threads


def run() -> None:
    """Run the command line, and end the process with its code."""
    try:
        main()
    except SystemExit as end:
        leave_threads(end)
        raise


if __name__ == "__main__":
    run()
