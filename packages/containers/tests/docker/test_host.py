"""Where the daemon is: by name, environment, context and habit."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.engines.certificates import make_certificates

from toolexec.errors import ConfigurationError
from toolexec_containers.docker.host import DockerHost, explain, find_host


def make_context(home: Path, name: str, endpoint: Any, *, tls: bool = False) -> None:
    directory = hashlib.sha256(name.encode()).hexdigest()
    meta = home / ".docker/contexts/meta" / directory
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": endpoint}))
    if tls:
        certificates = home / ".docker/contexts/tls" / directory / "docker"
        certificates.parent.mkdir(parents=True)
        make_certificates(certificates)


def test_an_address_that_is_given_comes_first(tmp_path: Path) -> None:
    env = {"DOCKER_HOST": "tcp://h:1", "DOCKER_CONTEXT": "c"}
    assert find_host("unix:///a/b", env, tmp_path) == DockerHost(address="unix:///a/b", path="/a/b")
    assert find_host("", env, tmp_path) == DockerHost(address="tcp://h:1", host="h", port=1)


@pytest.mark.parametrize(
    ("address", "host", "port", "url"),
    [
        ("tcp://h", "h", 2375, "http://h:2375"),
        ("http://h:80", "h", 80, "http://h:80"),
        ("tcp://[::1]:99/", "::1", 99, "http://[::1]:99"),
        ("https://h", "h", 2376, "https://h:2376"),
    ],
)
def test_addresses_of_other_machines(address: str, host: str, port: int, url: str, tmp_path: Path) -> None:
    found = find_host(address, {}, tmp_path)
    assert (found.host, found.port, found.url) == (host, port, url)
    assert (found.tls is not None) == address.startswith("https")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("ssh://me@there", "ssh -NL"),
        ("npipe:////./pipe/docker", "no address"),
        ("unix://relative", "no address"),
        ("/var/run/docker.sock", "no address"),
        ("tcp://", "must be like"),
        ("tcp://h:port", "no address"),
        ("tcp://u:p@h:1", "must be like"),
        ("tcp://h:1/path", "must be like"),
    ],
)
def test_addresses_that_nothing_here_talks_to(address: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=why):
        find_host(address, {}, tmp_path)


def test_tls_is_always_verified(tmp_path: Path) -> None:
    make_certificates(tmp_path / "certs")
    env = {"DOCKER_HOST": "tcp://h", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path / "certs")}
    found = find_host("", env, tmp_path)
    assert found.url == "https://h:2376"
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert found.tls.check_hostname
    (tmp_path / "certs/key.pem").unlink()
    with pytest.raises(ConfigurationError, match="DOCKER_CERT_PATH must hold"):
        find_host("", env, tmp_path)
    (tmp_path / "certs/ca.pem").write_text("nonsense")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        find_host("", env, tmp_path)


def test_a_context_is_followed(tmp_path: Path) -> None:
    make_context(tmp_path, "far", {"docker": {"Host": "tcp://far:2376"}}, tls=True)
    make_context(tmp_path, "near", {"docker": {"Host": "unix:///near.sock"}})
    (tmp_path / ".docker/config.json").write_text(json.dumps({"currentContext": "near"}))
    assert find_host("", {}, tmp_path).path == "/near.sock"
    far = find_host("", {"DOCKER_CONTEXT": "far"}, tmp_path)
    assert far.tls is not None
    assert far.url == "https://far:2376"


def test_a_context_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    make_context(tmp_path, "blind", {"docker": {"Host": "tcp://h", "SkipTLSVerify": True}}, tls=True)
    make_context(tmp_path, "empty", {})
    make_context(tmp_path, "odd", [1])
    with pytest.raises(ConfigurationError, match="does not verify"):
        find_host("", {"DOCKER_CONTEXT": "blind"}, tmp_path)
    for name in ("empty", "odd", "absent"):
        with pytest.raises(ConfigurationError, match=f"context '{name}' cannot be read"):
            find_host("", {"DOCKER_CONTEXT": name}, tmp_path)


@pytest.mark.parametrize("config", ["", "{", "[]", '{"currentContext": "default"}', "{}"])
def test_the_usual_sockets_are_tried_when_nothing_is_said(
    tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_text(config)
    monkeypatch.setattr(Path, "is_socket", lambda path: False)
    assert find_host("", {}, tmp_path).path == "/var/run/docker.sock"
    monkeypatch.setattr(Path, "is_socket", lambda path: str(path).startswith(str(tmp_path)))
    with socket.socket(socket.AF_UNIX) as own:
        own.bind("docker.sock")
        assert find_host("", {"XDG_RUNTIME_DIR": str(tmp_path)}, tmp_path / "none").path == f"{tmp_path}/docker.sock"


@pytest.mark.parametrize(
    ("error", "reason", "remedy"),
    [
        (FileNotFoundError(errno.ENOENT, "x"), "there is no socket /s", "systemctl start docker"),
        (PermissionError(errno.EACCES, "x"), "this user may not use /s", "usermod -aG docker"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "nothing listens at /s", "systemctl start docker"),
        (ssl.SSLError(1, "bad"), "no TLS connection", "DOCKER_CERT_PATH"),
        (TimeoutError(), "does not answer", "look at its log"),
        (OSError(errno.EIO, "odd"), "cannot be talked to: .*odd", "DOCKER_HOST"),
    ],
)
def test_why_a_daemon_cannot_be_talked_to_and_what_mends_it(error: OSError, reason: str, remedy: str) -> None:
    found = explain(DockerHost(address="unix:///s", path="/s"), error)
    assert re.search(reason, found[0])
    assert remedy in found[1]
