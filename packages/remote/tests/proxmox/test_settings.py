"""Settings of Proxmox VE that make no sense, what its refusals mean, and whose a clone is."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.errors import ConfigurationError
from toolexec.remote import ProxmoxSettings, SandboxSettings, make_runtime, this_owner
from toolexec_remote.proxmox.backend import ProxmoxBackend
from toolexec_remote.proxmox.client import path_of
from toolexec_remote.proxmox.failures import failed_task, lost_container, refusal, unavailable
from toolexec_remote.proxmox.owners import CloneNotes, read_notes

GIVEN: dict[str, Any] = {
    "url": "https://pve.example.com:8006",
    "token_id": "agents@pve!toolexec",
    "token_secret": "very-secret",
    "node": "pve1",
    "vmid": 101,
    "key_id": "agents",
    "runtime_token": "also-secret",
}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"url": "http://pve:8006"}, "https://pve.example.com:8006"),
        ({"url": "https://root:pw@pve:8006"}, "neither a password"),
        ({"url": "https://pve:port"}, "is not a URL"),
        ({"token_id": ""}, "either a token_id"),
        ({"username": "agents@pve"}, "either a token_id"),
        ({"token_id": "agents!toolexec"}, "not like agents@pve!toolexec"),
        ({"token_id": "", "username": "agents"}, "no realm"),
        ({"token_secret": ""}, "needs a token_secret"),
        ({"token_id": "", "username": "agents@pve"}, "needs a password"),
        ({"ca_file": "ca.pem", "fingerprint": "00" * 32}, "not both"),
        ({"fingerprint": "00:11"}, "32 bytes"),
        ({"node": ""}, "needs a node"),
        ({"node": "a/../b"}, "not the name of one"),
        ({"vmid": 0}, "a container"),
        ({"template": 900}, "not both"),
        ({"vmid": 99}, "100 or above"),
        ({"rollback": "../clean"}, "not the name of a snapshot"),
        ({"rollback": "clean", "auto_start": False}, "may be started"),
        ({"storage": "fast"}, "full_clones"),
        ({"warm": 5}, "no more than max_clones"),
        ({"runs_per_clone": -1}, "runs_per_clone"),
        ({"start_timeout": 0.0}, "start_timeout must be above 0"),
        ({"linger": -1.0}, "linger"),
        ({"runtime": "ftp://{ip}"}, "is not a URL of HTTP"),
        ({"runtime_token": ""}, "a token"),
        ({"sandbox": "bubblewrp"}, "did you mean bubblewrap"),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields: dict[str, Any], message: str) -> None:
    """The message says what to write."""
    with pytest.raises(ConfigurationError, match=message):
        ProxmoxSettings(**{**GIVEN, **fields})


def test_secrets_are_not_shown() -> None:
    """Neither settings nor a backend have them in their representation."""
    settings = ProxmoxSettings(**GIVEN, signing_key="third-secret")
    assert "secret" not in repr(settings).replace("token_secret", "")


def test_a_container_is_found_at_its_address() -> None:
    """An address of IPv6 has brackets; a fixed endpoint needs none."""
    settings = ProxmoxSettings(**GIVEN, server_name="sandbox")
    assert settings.remote("192.0.2.7").endpoints == ("https://192.0.2.7:8090/v1/execute",)
    assert settings.remote("2001:db8::7").endpoints == ("https://[2001:db8::7]:8090/v1/execute",)
    assert settings.remote("192.0.2.7").server_name == "sandbox"
    assert settings.needs_address
    with pytest.raises(ConfigurationError, match="plain_http"):
        ProxmoxSettings(**GIVEN, runtime="http://{ip}:8090/v1/execute")
    plain = ProxmoxSettings(**GIVEN, runtime="http://{ip}:8090/v1/execute", plain_http=True)
    assert plain.remote("192.0.2.7").endpoints == ("http://192.0.2.7:8090/v1/execute",)
    fixed = ProxmoxSettings(**GIVEN, runtime="https://sandbox.example.com/v1/execute")
    assert not fixed.needs_address


@pytest.mark.parametrize(
    ("sandbox", "isolation", "profiles"),
    [("wasm", "wasm", {"standard"}), ("gvisor", "gvisor", {"hardened"}), ("unsafe_host", "none", {"dev"})],
)
async def test_it_is_judged_by_the_sandbox_inside(sandbox: str, isolation: str, profiles: set[str]) -> None:
    """A container of Proxmox makes nothing safe by itself."""
    settings = SandboxSettings(use=("proxmox_lxc",), proxmox=ProxmoxSettings(**GIVEN, sandbox=sandbox))
    async with make_runtime(settings) as runtime:
        (backend,) = runtime.backends
        assert isinstance(backend, ProxmoxBackend)
        assert backend.isolation == isolation
        served = {name for name in ("dev", "standard", "hardened") if runtime.candidates(name)}
    assert profiles <= served
    assert "standard" not in served or sandbox != "unsafe_host"


def test_without_settings_there_is_none() -> None:
    """The error says what to set."""
    assert "proxmox_lxc" not in [backend.kind for backend in make_runtime().backends]
    with pytest.raises(ConfigurationError, match=r"sandboxes\.proxmox\.url"):
        make_runtime(SandboxSettings(use=("proxmox_lxc",)))


@pytest.mark.parametrize(
    ("status", "message", "reason", "retryable"),
    [
        (401, "permission denied - invalid PVE ticket", "auth", False),
        (401, "invalid token value!", "auth", False),
        (403, "Permission check failed (/vms/100, VM.PowerMgmt)", "forbidden", False),
        (500, "Configuration file 'nodes/pve/lxc/123.conf' does not exist", "no_such_container", False),
        (500, "unable to find configuration file for CT 123 on node 'pve'", "no_such_container", False),
        (500, "hostname lookup 'pve9' failed - failed to get address info for: pve9", "no_such_node", False),
        (500, "snapshot 'clean' does not exist", "no_such_snapshot", False),
        (500, "CT is locked (backup)", "locked", True),
        (500, "can't lock file '/run/lock/lxc/pve-config-100.lock' - got timeout", "locked", True),
        (500, "CT 101 already exists on node 'pve'", "exists", True),
        (500, "CT 100 already running", "already_running", False),
        (500, "CT 100 not running", "not_running", False),
        (500, "you can't start a CT if it's a template", "is_template", False),
        (500, "Linked clone feature for 'local:100/vm-100-disk-0.raw' is not available", "no_linked_clone", False),
        (500, "Cannot do full clones on a running container without snapshots", "runs", False),
        (500, "cluster not ready - no quorum?", "no_quorum", True),
        (500, "storage 'fast' does not exist", "storage", False),
        (500, "write failed: No space left on device", "no_space", True),
        (400, "Parameter verification failed.", "invalid", False),
        (501, "Method 'GET /x' not implemented", "not_found", False),
        (595, "No route to host", "node_down", True),
        (596, "Broken pipe", "node_down", True),
        (500, "something else", "failed", False),
        (500, "", "failed", False),
    ],
)
def test_a_refusal_has_a_word_and_says_whether_to_try_again(
    status: int, message: str, reason: str, retryable: bool
) -> None:
    """These are messages of Proxmox VE, letter by letter."""
    error = refusal(status, f"{message}\n", "GET /nodes")
    assert (error.reason, error.retryable, error.status) == (reason, retryable, status)
    assert message in error.message
    caught = unavailable(error, "pve", 100)
    assert caught.outcome == "not_sent"
    assert caught.details == {"reason": reason, "status": status, "node": "pve", "vmid": 100}


def test_only_a_node_that_was_reached_may_have_done_something() -> None:
    """Requests that were passed on and broke off may have been carried out; those that could not be passed on were not."""
    assert not refusal(595, "No route to host", "POST /x").sent
    assert refusal(596, "Broken pipe", "POST /x").sent


def test_a_task_that_failed_says_why() -> None:
    """Its message is judged as an answer is; the log is for the rest."""
    assert failed_task("vzclone", "clone failed: CT is locked (disk)").reason == "locked"
    error = failed_task("vzstart", "startup for container '100' failed", "a | TASK ERROR: startup")
    assert (error.reason, error.retryable) == ("task_failed", False)
    assert "TASK ERROR: startup" in error.message


def test_a_container_that_was_taken_away_says_how() -> None:
    """Both say that the program may have run."""
    for state, reason in (("stopped", "container_stopped"), ("gone", "container_removed")):
        error = lost_container("pve", 100, state)
        assert (error.details["reason"], error.details["began"], error.retryable) == (reason, True, False)


def test_notes_name_the_owner() -> None:
    """Only clones of others that are silent, or dead on this machine, are left over."""
    notes = CloneNotes(name="toolexec-0a", until=1000)
    read = read_notes(f"written by people\n{notes.text()}\n")
    assert read == CloneNotes(name="toolexec-0a", until=1000, owner=this_owner())
    assert read is not None
    assert not read.is_left_over(2000.0)
    other = CloneNotes(name="toolexec-0a", until=1000, owner="feedfacefeedface-1-1")
    assert other.is_left_over(1000.5)
    assert not other.is_left_over(999.5)
    machine = this_owner().partition("-")[0]
    assert CloneNotes(name="toolexec-0a", until=1000, owner=f"{machine}-1-1").is_left_over(0.0)
    assert read_notes("a container of people") is None


def test_paths_are_escaped() -> None:
    """No part of a path leads elsewhere."""
    assert path_of("nodes", "a/../b", 100) == "/nodes/a%2F..%2Fb/100"
