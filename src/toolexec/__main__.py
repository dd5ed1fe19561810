"""`python -m toolexec` is the `toolexec` command."""

from toolexec.cli.app import main

if __name__ == "__main__":
    main()
