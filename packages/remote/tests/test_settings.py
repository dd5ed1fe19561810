"""How settings set the sandboxes of other machines up, and which profiles these serve."""

from __future__ import annotations

import pytest

from toolexec.errors import ConfigurationError
from toolexec.remote import RemoteSettings, SandboxSettings, make_runtime

SETTINGS = RemoteSettings(
    endpoints=("https://a.example.com/v1/execute", "https://b.example.com/v1/execute"),
    key_id="team",
    token="secretref:env:RUNTIME_TOKEN",
    sandbox="gvisor",
)


def test_remote_runtimes_are_there_once_they_have_endpoints() -> None:
    """Remote ones come after the sandboxes of this machine, and are judged by the kind that runs there."""
    runtime = make_runtime(SandboxSettings(remote=SETTINGS))
    assert runtime.candidates("hardened")[0].kind == "gvisor"
    assert [backend.kind for backend in runtime.candidates("hardened") if backend.kind == "remote"] == ["remote"]
    assert [backend.kind for backend in runtime.candidates("dev")] == ["unsafe_host"]
    alone = make_runtime(SandboxSettings(use=("remote",), remote=SETTINGS))
    assert [backend.kind for backend in alone.candidates("hardened")] == ["remote"]
    assert alone.candidates("dev") == []


def test_remote_without_endpoints_cannot_be_used() -> None:
    """The error says what to set."""
    with pytest.raises(ConfigurationError, match=r"sandboxes\.remote\.endpoints"):
        make_runtime(SandboxSettings(use=("remote",)))


@pytest.mark.parametrize("kind", ["remote", "proxmox_lxc"])
def test_their_settings_have_names_of_their_own(kind: str) -> None:
    """A table of a plugin is refused, and not ignored."""
    with pytest.raises(ConfigurationError, match="names of their own"):
        SandboxSettings(use=(kind,), plugins={kind: {"endpoints": ["https://a.example.com"]}})
