"""The settings of a guest, read back from its command."""

from __future__ import annotations

import pytest

from toolexec.runtime.guest.bundle import GuestSettings, boot_command, settings_of


def test_settings_are_read_back() -> None:
    """The program that starts Python makes no difference."""
    settings = GuestSettings(language="javascript", drop=("seccomp",), warm=True, proxy_port=7)
    assert settings_of(boot_command(settings)) == settings
    assert settings_of(boot_command(settings, "/opt/python")) == settings


@pytest.mark.parametrize("command", [(), ("true",), ("python3", "-I", "-X", "utf8", "-c", "print(1)", "{}")])
def test_another_command_has_none(command: tuple[str, ...]) -> None:
    """Only our own program takes settings."""
    assert settings_of(command) is None
