"""How images of the store are called: `python-tools`, `team/python-tools:2`, `python-tools@sha256:…`."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

from toolexec.errors import ConfigurationError

_MAX_LENGTH: Final = 200
_LATEST: Final = ":latest"
_PART: Final = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_NAME: Final = re.compile(rf"{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?")
_PIN: Final = re.compile(r"sha256:[0-9a-f]{64}")


def normal_name(name: str) -> str:
    """Return *name* in the one spelling that it has here: without `:latest`.

    Raises ConfigurationError for what container engines would not take as the name of an image.
    """
    if len(name) > _MAX_LENGTH or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name[:_MAX_LENGTH]!r} is not a name for an image; give one in small letters and digits, as in "
            "'python-tools' or 'team/python-tools:2'"
        )
    return name.removesuffix(_LATEST)


def split_pin(name: str) -> tuple[str, str]:
    """Return a name and the digest that it is pinned to ("" for none). Raises ConfigurationError as `normal_name`
    does.
    """
    plain, at, pin = name.partition("@")
    if at and not _PIN.fullmatch(pin):
        raise ConfigurationError(f"{name[:_MAX_LENGTH]!r} is pinned to no digest; give one as in 'name@sha256:…'")
    return normal_name(plain), pin


def file_name(name: str) -> str:
    """Return what the files of the image are called."""
    return quote(name, safe="")


def name_of_file(file: str) -> str:
    """Return the name of the image that files are called so for."""
    return unquote(file)
