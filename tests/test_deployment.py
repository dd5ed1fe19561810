"""What deploys the servers: the image's file, its probe and its bill of materials, the chart's manifests."""

from __future__ import annotations

import dataclasses
import http.server
import json
import re
import runpy
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from release.chart import CHART, MANIFESTS
from release.projects import ROOT, version

from toolexec.config.load import load_settings
from toolexec.config.parts import auth_settings, http_settings
from toolexec.server.http.settings import check_exposure

DOCKERFILE = ROOT / "deploy/Dockerfile"
SECRETS = {"RUNTIME_TOKEN": "t" * 32, "RUNTIME_SECRET": "s" * 32, "METRICS_TOKEN": "m" * 32}
OBJECTS: list[dict[str, Any]] = [each for each in yaml.safe_load_all(MANIFESTS.read_text()) if each]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [each for each in OBJECTS if each["kind"] == kind]


def stages() -> dict[str, list[tuple[str, str]]]:
    """Return the instructions of each stage of the image's file, those of the stages that it is from before its own."""
    text = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE.read_text()))
    found: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            current = found[name] = [*found.get(base, [("FROM", base)])]
        else:
            current.append((word, rest))
    return found


@pytest.mark.parametrize(("target", "port"), [("serve", 8080), ("runtime", 8090)])
def test_an_image_has_no_more_than_it_needs(target: str, port: int) -> None:
    """An image runs as a user of its own, has no installer and no wheels, says how it is, and reads one file of
    settings."""
    instructions = stages()[target]
    found = dict(instructions)
    assert found["USER"] == "10001:10001"
    assert json.loads(found["ENTRYPOINT"]) == ["toolexec"]
    assert json.loads(found["CMD"])[-3:] == ["serve", "-c", "/etc/toolexec/toolexec.toml"]
    assert f"127.0.0.1:{port}/" in found["HEALTHCHECK"]
    assert found["EXPOSE"] == str(port)
    text = "\n".join(f"{word} {rest}" for word, rest in instructions)
    assert "pip uninstall" in text
    assert not re.search(r"pip install|apt-get|/wheels|curl|ADD ", text)
    written = " ".join(json.loads(found["VOLUME"]))
    assert {"/var/lib/toolexec", "/var/cache/toolexec"} == {*written.split()}
    for label in ("licenses", "source", "version", "revision", "title", "description"):
        assert f"org.opencontainers.image.{label}=" in text, label


@pytest.mark.parametrize("target", ["build-serve", "build-runtime"])
def test_what_pip_is_given_reaches_the_stages_that_install(target: str) -> None:
    """An argument is gone in the stages that are made from its own: each of pip's is a variable there, too."""
    instructions = stages()[target]
    assert any("pip --python" in rest for word, rest in instructions if word == "RUN")
    given = {rest.partition("=")[0] for word, rest in instructions if word == "ARG" and rest.startswith("PIP_")}
    variables = " ".join(rest for word, rest in instructions if word == "ENV")
    assert given == {"PIP_NO_INDEX"}
    assert [name for name in given if f"{name}=${{{name}}}" not in variables] == []


def test_what_an_image_copies_is_sent_to_the_builder() -> None:
    """Each file is there, or built, and .dockerignore lets it through; all others it keeps away."""
    first, *allowed = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] != "#"]
    assert first == "*"
    patterns = {line.removeprefix("!") for line in allowed}
    copied: set[str] = set()
    for instructions in stages().values():
        for word, rest in instructions:
            if word == "COPY" and not rest.startswith("--from="):
                copied |= {*shlex.split(rest)[:-1]}
    assert copied == patterns
    assert [name for name in copied if not name.startswith("dist/") and not (ROOT / name).is_file()] == []


@contextmanager
def answering(status: int) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/healthz"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("status", "is_alive"), [(200, True), (421, True), (503, False)])
def test_the_probe_takes_an_answer(status: int, is_alive: bool) -> None:
    """Every answer below 500 counts, also from a server that does not know its address; 503 and silence do not."""
    lives = runpy.run_path(str(ROOT / "deploy/probe.py"))["lives"]
    with answering(status) as url:
        assert lives(url) is is_alive
    assert lives(url) is False


def test_the_bill_of_materials_has_what_is_installed() -> None:
    """Each distribution is there once, with its address on the index; the same ones make the same bill."""
    bill = runpy.run_path(str(ROOT / "deploy/sbom.py"))["bill"]
    made = bill("image")
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert made == bill("image")
    parts = {each["bom-ref"]: each for each in made["components"]}
    assert len(parts) == len(made["components"])
    assert any(purl.startswith("pkg:pypi/pydantic@") for purl in parts)
    assert any(purl.startswith("pkg:pypi/toolexec@") for purl in parts)


def test_the_manifests_have_what_a_server_needs() -> None:
    """For each of both."""
    wanted = {
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
    }
    for part in ("serve", "runtime"):
        assert {each["kind"] for each in OBJECTS if each["metadata"]["name"] == f"toolexec-{part}"} == wanted
    assert len(OBJECTS) == 2 * len(wanted)


@pytest.mark.skipif(find_spec("kubernetes_asyncio") is None, reason="the package of Kubernetes is not installed")
def test_the_manifests_are_what_kubernetes_takes() -> None:
    """Every field is one of the published schema, and has its type; no required one is missing."""
    from packages.kubernetes.tests.kube.resources import Resource
    from packages.kubernetes.tests.kube.schema import check_schema
    from packages.kubernetes.tests.kube.validate import check_values

    models = {"HorizontalPodAutoscaler": "V2HorizontalPodAutoscaler"}
    for each in OBJECTS:
        kind = each["kind"]
        if kind == "ServiceMonitor":  # of Prometheus' operator, whose schema is not published there
            assert {*each["spec"]} == {"selector", "endpoints"}
            continue
        group, _, number = each["apiVersion"].rpartition("/")
        resource = Resource(group, number, f"{kind.lower()}s", kind, models.get(kind, f"V1{kind}"))
        check_schema(resource, each)
        check_values(resource, each)
        if kind == "Deployment":
            pod = {"metadata": {"name": "pod"}, "spec": each["spec"]["template"]["spec"]}
            check_values(Resource("", "v1", "pods", "Pod", "V1Pod"), pod)


@pytest.mark.parametrize("deployment", of_kind("Deployment"), ids=lambda each: each["metadata"]["name"])
def test_a_pod_fits_the_restricted_standard(deployment: dict[str, Any]) -> None:
    """A pod has no token of the cluster, no root and nothing to write but its volumes, is of this version, and has the
    time to let its calls end."""
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (account,) = (each for each in of_kind("ServiceAccount") if each["metadata"]["name"] == spec["serviceAccountName"])
    assert account["automountServiceAccountToken"] is spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert container["image"].endswith(f":{version()}")
    mounted = {each["name"]: each for each in container["volumeMounts"]}
    assert {*mounted} == {each["name"] for each in spec["volumes"]}
    written = {each["mountPath"] for each in mounted.values() if not each.get("readOnly")}
    assert written == {"/var/lib/toolexec", "/var/cache/toolexec", "/tmp"}
    is_serve = deployment["metadata"]["name"].endswith("serve")
    drains = 3 if is_serve else 30  # http.shutdown_grace, runtime_server.drain_grace
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] > pause + drains
    paths = ("/healthz", "/readyz") if is_serve else ("/health", "/ready")
    probes = (container["livenessProbe"]["httpGet"]["path"], container["readinessProbe"]["httpGet"]["path"])
    assert probes == paths


@pytest.mark.parametrize("part", ["serve", "runtime"])
def test_the_settings_of_the_manifests_are_right(part: str, tmp_path: Path) -> None:
    """The settings are read with the variables of the pod, whose address is among the hosts: probes come with it."""
    (config,) = (each for each in of_kind("ConfigMap") if each["metadata"]["name"] == f"toolexec-{part}")
    path = tmp_path / "toolexec.toml"
    path.write_text(config["data"]["toolexec.toml"])
    (deployment,) = (each for each in of_kind("Deployment") if each["metadata"]["name"] == f"toolexec-{part}")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    given = {
        each["name"]: each["value"].replace("$(POD_IP)", "10.1.2.3") for each in container["env"] if "value" in each
    }
    loaded = load_settings([path], environment={**SECRETS, **given})
    if part == "serve":
        http = dataclasses.replace(http_settings(loaded), host="0.0.0.0")
        check_exposure(http, auth_settings(loaded))
        assert http.allowed_hosts == ("tools.example.com", "10.1.2.3")
        assert container["args"][:5] == ["serve", "-c", "/etc/toolexec/toolexec.toml", "--transport", "http"]
    else:
        assert container["args"][:4] == ["runtime", "serve", "-c", "/etc/toolexec/toolexec.toml"]
    named = {*re.findall(r"secretref:env:(\w+)", path.read_text())}
    assert named <= {*SECRETS}
    assert container["envFrom"] == [{"secretRef": {"name": f"toolexec-{part}"}}]


def test_the_chart_has_a_schema_for_all_its_values() -> None:
    """Each value of both servers is in it, and it knows no others."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = schema["definitions"]["server"]["properties"]
    for part in ("serve", "runtime"):
        assert {*values[part]} == {*known}
        for name, each in values[part].items():
            if "properties" in known[name]:
                assert {*each} == {*known[name]["properties"]}, name
