"""The Proxmox VE of the tests as a process: how it is started, asked, broken and stopped."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any
from urllib.parse import quote, urlencode

import psutil
import pytest
from tests.engines.certificates import make_certificates
from tests.engines.images import test_image
from tests.engines.programs import free_port, has_ended, require_program, unused_network, wait_until
from tests.tiers import missing

from toolexec.remote import ProxmoxSettings

_ROOT = Path(__file__).parents[4]
_SERVER = "packages.remote.tests.pve.server"
_START = 60.0
TOKEN_ID, TOKEN_SECRET = "agents@pve!toolexec", "11111111-2222-3333-4444-555555555555"
_RUNTIME = {"token": "a token of the tests", "secret": "a secret of the tests"}


class ProxmoxCluster:
    """An API server with one node, in a process of its own, with one directory. `stop` removes all of it."""

    def __init__(self) -> None:
        if os.name != "posix" or os.geteuid() != 0:
            missing("only root can run Linux containers", "sudo -E bash .ci/run")
        for program in ("lxc-start", "lxc-info", "lxc-stop"):
            require_program(program, "lxc")
        require_program("ip", "iproute2")
        require_program("bwrap", "bubblewrap")
        test_image()
        self.directory = Path(tempfile.mkdtemp(prefix="pv"))
        self.port = free_port()
        self.url = f"https://localhost:{self.port}"
        self.ca = self.directory / "tls" / "ca.pem"
        self.log = self.directory / "log"
        self.pid = 0
        self._network = unused_network()
        self._bridge = f"pv{self._network.rpartition('.')[2]}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        make_certificates(self.directory / "tls")
        settings = {"port": self.port, "network": self._network, "tokens": _RUNTIME}
        (self.directory / "settings.json").write_text(json.dumps(settings))
        words = [sys.executable, "-m", _SERVER, str(self.directory)]
        with self.log.open("ab") as log:
            # Not a child of ours: it is to outlive a test, and tests are looked at for what they leave running.
            subprocess.run(
                ["setsid", "--fork", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
                cwd=_ROOT,
                env={key: value for key, value in os.environ.items() if not key.startswith("COV")},
            )
        try:
            wait_until((self.directory / "ready").exists, _START, "the Proxmox of the tests did not start")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; its log: {self.log.read_text('utf-8', 'replace')[-3000:]}") from None
        self.pid = next(each.pid for each in psutil.process_iter() if _is_server(each, self.directory))

    def settings(self, **fields: Any) -> ProxmoxSettings:
        """Return the settings of a client, with a token unless *fields* say something else."""
        user: dict[str, Any] = {} if "username" in fields else {"token_id": TOKEN_ID, "token_secret": TOKEN_SECRET}
        trust: dict[str, Any] = {} if "fingerprint" in fields else {"ca_file": str(self.ca)}
        given: dict[str, Any] = {
            "url": self.url,
            "node": "pve",
            "key_id": "tests",
            "runtime_token": _RUNTIME["token"],
            "signing_key": _RUNTIME["secret"],
            "sandbox": "bubblewrap",
            "runtime_ca_file": str(self.ca),
            "server_name": "localhost",
            "start_timeout": 60.0,
            "stop_timeout": 5.0,
            "watch": 0.2,
            "poll": 0.3,
            **user,
            **trust,
        }
        return ProxmoxSettings(**{**given, **fields})

    @property
    def fingerprint(self) -> str:
        """Return the SHA-256 of the certificate, as Proxmox shows it."""
        pem = (self.directory / "tls" / "server-cert.pem").read_text()
        digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest().upper()
        return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))

    # -- behind the back of a client ----------------------------------------------------------------------------

    def control(self, what: str, **given: Any) -> Any:
        """Set switches (`fault`, `access`, `reset`), or ask (`log`); see `Api.control`."""
        return self._sent("POST", f"/fixture/{what}", {"Content-Type": "application/json"}, json.dumps(given))[1]

    def api(self, method: str, path: str, **fields: Any) -> Any:
        """Make a request as root, which has to succeed; a task is waited for."""
        data = self._api(method, path, fields)
        if isinstance(data, str) and data.startswith("UPID:"):
            status = f"/nodes/pve/tasks/{quote(data, safe='')}/status"
            wait_until(lambda: self._api("GET", status, {})["status"] == "stopped", _START, "a task did not end")
            ended = self._api("GET", status, {})["exitstatus"]
            assert ended == "OK", (method, path, ended)
        return data

    def _api(self, method: str, path: str, fields: Mapping[str, Any]) -> Any:
        login = urlencode({"username": "root@pam", "password": "pw-of-root"})
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        ticket = self._sent("POST", "/api2/json/access/ticket", form, login)[1]["data"]
        headers = {
            "Cookie": f"PVEAuthCookie={quote(ticket['ticket'], safe='')}",
            "CSRFPreventionToken": ticket["CSRFPreventionToken"],
        }
        in_body = method in ("POST", "PUT")
        query = f"?{urlencode(fields)}" if fields and not in_body else ""
        body = urlencode(fields) if in_body else None
        status, data = self._sent(method, f"/api2/json{path}{query}", {**headers, **(form if in_body else {})}, body)
        assert status == 200, (method, path, status, data)
        return data["data"]

    def _sent(self, method: str, path: str, headers: Mapping[str, str], body: str | None) -> tuple[int, Any]:
        tls = ssl.create_default_context(cafile=str(self.ca))
        connection = http.client.HTTPSConnection("localhost", self.port, context=tls, timeout=60)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def state(self, vmid: int) -> str:
        """Return the status of a container; "" for one that is not there."""
        return {each["vmid"]: each["status"] for each in self.api("GET", "/nodes/pve/lxc")}.get(vmid, "")

    def clones(self) -> list[int]:
        """Return the numbers of all containers that are clones of toolexec."""
        return [each["vmid"] for each in self.api("GET", "/nodes/pve/lxc") if each["name"].startswith("toolexec-")]

    def left(self) -> list[str]:
        """Return what there is of LXC on this machine below our directory: processes, mounts, interfaces."""
        found = [f"{each.pid} {' '.join(each.cmdline())}" for each in psutil.process_iter() if _is_monitor(each, self)]
        mounts = Path("/proc/self/mountinfo").read_text()
        found += [line for line in mounts.splitlines() if f"{self.directory}/" in line]
        return found + [f"interface {name}" for name in os.listdir(f"/sys/class/net/{self._bridge}/brif")]

    def stop(self) -> None:
        """Stop it with all its containers, and remove its directory."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            wait_until(lambda: has_ended(self.pid), _START, "the Proxmox of the tests did not stop")
        rmtree(self.directory, ignore_errors=True)


def _is_server(process: psutil.Process, directory: Path) -> bool:
    with suppress(psutil.Error):
        words = process.cmdline()
        return _SERVER in words and str(directory) in words
    return False


def _is_monitor(process: psutil.Process, cluster: ProxmoxCluster) -> bool:
    with suppress(psutil.Error):
        return any(f"{cluster.directory}/lxc" in word for word in process.cmdline())
    return False


@pytest.fixture(scope="session")
def proxmox_cluster() -> Iterator[ProxmoxCluster]:
    """Give a Proxmox for the whole run: the container 100 (stopped), its like with no isolation 101, the template 900."""
    cluster = ProxmoxCluster()
    try:
        cluster.start()
        cluster.control("make", vmid=100, sandbox="bubblewrap", template=False)
        cluster.control("make", vmid=101, sandbox="unsafe_host", template=False)
        cluster.control("make", vmid=900, sandbox="bubblewrap", template=True)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def proxmox_node(proxmox_cluster: ProxmoxCluster) -> Iterator[ProxmoxCluster]:
    """Give the same with no faults, no container running, and no clones; after the test there are none, either."""
    proxmox_cluster.control("reset")
    yield proxmox_cluster
    proxmox_cluster.control("reset")
    left = proxmox_cluster.clones()
    for each in proxmox_cluster.api("GET", "/nodes/pve/lxc"):
        if each["vmid"] in left:
            proxmox_cluster.api("DELETE", f"/nodes/pve/lxc/{each['vmid']}", force=1)
        elif each["status"] == "running":
            proxmox_cluster.api("POST", f"/nodes/pve/lxc/{each['vmid']}/status/stop")
    assert left == []
    assert proxmox_cluster.left() == []
