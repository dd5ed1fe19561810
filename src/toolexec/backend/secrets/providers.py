"""Where secrets are kept: the environment, files, programs, the system's keyring."""

from __future__ import annotations

import logging
import os
import shlex
import stat
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from toolexec.errors import MissingExtraError, SecretError
from toolexec.process.tree import signal_group

logger: logging.Logger = logging.getLogger(__name__)
MAX_BYTES: Final = 64 << 10
COMMAND_SECONDS: Final = 10.0

SecretProvider: TypeAlias = Callable[[str], str]
"""Gives the secret that a reference names. May block. Raises SecretError, with words that may be shown; of anything
else that it raises only the type is shown."""


def ask_environment(environment: Mapping[str, str]) -> SecretProvider:
    """Return the provider `env`: the variable with this name; raises SecretError when it is not set or empty."""

    def ask(ref: str) -> str:
        value = environment.get(ref)
        if not value:
            raise SecretError(f"the environment variable {ref} is {'empty' if value == '' else 'not set'}")
        return value

    return ask


def read_secret_file(ref: str) -> str:
    """Return the provider `file`: the text of the file with this path, without one line break at its end.

    `~` is the home directory. A file that other users may read is used with a warning. Raises SecretError when there is
    no such regular file, or it has more than 64 KiB, no text or nothing in it.
    """
    try:
        path = Path(ref).expanduser()
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise SecretError(f"{path} is not a regular file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise SecretError(f"cannot read the file {ref}: {reason or type(error).__name__}") from None
    if os.name == "posix" and state.st_mode & stat.S_IROTH:
        logger.warning("every user of this machine can read the secret in %s; chmod 600 it", path)
    text = _decode(data, f"the file {ref}")
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def ask_command(ref: str) -> str:
    """Return the provider `command`: what this command line prints, without blanks around it.

    No shell is involved; the words are split as a POSIX shell would. The program gets the environment of this process
    and no input, and has 10 seconds. Raises SecretError when it cannot be started, takes longer, exits with anything
    but 0, or prints nothing, no text, or more than 64 KiB. What it writes to stderr is never shown.
    """
    try:
        words = shlex.split(ref)
    except ValueError:
        raise SecretError("its command line has an open quote") from None
    if not words:
        raise SecretError("its command line is empty")
    name = f"the command {words[0]!r}"
    try:
        process = subprocess.Popen(  # noqa: S603 - the operator's own configuration names it
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it has a NUL character"
        raise SecretError(f"{name} cannot be started: {reason}") from None
    late = threading.Event()

    def stop() -> None:
        late.set()
        signal_group(process.pid)

    timer = threading.Timer(COMMAND_SECONDS, stop)
    timer.daemon = True
    timer.start()
    try:
        assert process.stdout is not None
        data = process.stdout.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            signal_group(process.pid)
        code = process.wait()
    finally:
        timer.cancel()
        assert process.stdout is not None
        process.stdout.close()
    if late.is_set():
        raise SecretError(f"{name} did not end within {COMMAND_SECONDS:g} s and was stopped")
    if len(data) <= MAX_BYTES and code != 0:
        raise SecretError(f"{name} {f'exited with {code}' if code > 0 else f'was ended by signal {-code}'}")
    return _decode(data, f"what {name} printed").strip()


def ask_keyring(ref: str) -> str:
    """Return the provider `keyring`: the password that the system's keyring has for `service/name`.

    Raises SecretError when there is none or the keyring cannot be used, MissingExtraError without the `keyring` extra.
    """
    service, _, name = ref.rpartition("/")
    if not service or not name:
        raise SecretError(f"keyring:{ref} is not keyring:<service>/<name>")
    try:
        import keyring
    except ModuleNotFoundError as error:
        raise MissingExtraError("keyring", needed_for="secretref:keyring:") from error
    try:
        value = keyring.get_password(service, name)
    except Exception as error:  # every keyring has errors of its own
        raise SecretError(f"the keyring cannot be used ({type(error).__name__})") from None
    if not value:
        raise SecretError(f"the keyring has no password for {name} of {service}")
    return value


def _decode(data: bytes, what: str) -> str:
    if len(data) > MAX_BYTES:
        raise SecretError(f"{what} has more than {MAX_BYTES >> 10} KiB, too much for a secret")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise SecretError(f"{what} is not UTF-8 text") from None
    if not text.strip():
        raise SecretError(f"{what} is empty")
    return text
