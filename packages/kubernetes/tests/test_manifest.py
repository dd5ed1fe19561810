"""What `toolexec sandbox kubernetes manifest` prints for a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.command_line import CliRunner, Result

from toolexec.cli import app
from toolexec_kubernetes.config import KubernetesConfig
from toolexec_kubernetes.manifest import make_manifest, python_pod, to_yaml
from toolexec_kubernetes.spec import policy_body, spec_hash


def by_kind(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in documents}


def run(*words: str) -> Result:
    return CliRunner().invoke(app.app, ["sandbox", "kubernetes", "manifest", *words])


def test_the_yaml_says_what_the_objects_say() -> None:
    made = make_manifest(KubernetesConfig(namespace="code", runtime_class="gvisor"), pool="python", pods=5)
    assert list(yaml.safe_load_all(to_yaml(made))) == made


@pytest.mark.parametrize(
    "value",
    ["", "yes", "No", "null", "1", "1.5", "a: b", "- a", "#x", "ä", "a\nb", "0x1f", "~", " a", "*", "e5", "2026-01-01"],
)
def test_strings_stay_strings(value: str) -> None:
    documents = [{"value": value, "values": [value, {"inner": value}, [], {}], value or "key": True}]
    assert list(yaml.safe_load_all(to_yaml(documents))) == documents


def test_the_permissions_are_few() -> None:
    made = by_kind(make_manifest(KubernetesConfig(namespace="code")))
    rules = {(each["apiGroups"][0], each["resources"][0]): each["verbs"] for each in made["Role"]["rules"]}
    assert set(rules) == {
        ("", "pods"),
        ("", "pods/attach"),
        ("", "pods/log"),
        ("coordination.k8s.io", "leases"),
        ("networking.k8s.io", "networkpolicies"),
    }
    assert {"create"} == {*rules["", "pods"]} - {"delete", "get", "list", "watch"}
    assert rules["networking.k8s.io", "networkpolicies"] == ["get"]
    assert [each["resourceNames"] for each in made["Role"]["rules"] if "resourceNames" in each] == [
        ["toolexec-sandboxes"]
    ]
    assert not any(verb == "*" or "exec" in name for (_, name), verbs in rules.items() for verb in verbs)
    assert made["Namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert made["NetworkPolicy"]["spec"] == policy_body()["spec"]
    assert {each["metadata"].get("namespace") for kind, each in made.items() if kind != "Namespace"} == {"code"}
    assert not {"ClusterRole", "ResourceQuota", "SandboxTemplate"} & made.keys()


def test_a_runtime_class_may_be_looked_at_and_no_other() -> None:
    made = by_kind(make_manifest(KubernetesConfig(namespace="code", runtime_class="gvisor")))
    (rule,) = made["ClusterRole"]["rules"]
    assert rule["resourceNames"] == ["gvisor"]
    assert rule["verbs"] == ["get"]
    assert made["ClusterRoleBinding"]["subjects"][0]["namespace"] == "code"


def test_a_pool_is_found_by_what_its_pods_are() -> None:
    config = KubernetesConfig(namespace="code", image="team/tools:1")
    made = by_kind(make_manifest(config, pool="python", replicas=7))
    template = made["SandboxTemplate"]
    digest = spec_hash(python_pod(config), config)
    assert template["metadata"]["labels"]["toolexec.io/spec"] == digest
    assert template["spec"]["podTemplate"]["metadata"]["labels"]["toolexec.io/sandbox"] == "true"
    assert made["SandboxWarmPool"]["spec"] == {"replicas": 7, "sandboxTemplateRef": {"name": "python"}}
    assert ("extensions.agents.x-k8s.io", "sandboxclaims") in {
        (each["apiGroups"][0], each["resources"][0]) for each in made["Role"]["rules"]
    }


def test_a_quota_is_made_on_demand() -> None:
    made = by_kind(make_manifest(KubernetesConfig(namespace="code"), pods=4))
    assert made["ResourceQuota"]["spec"]["hard"] == {"pods": "4", "limits.memory": str(4 * 512 * 1024**2)}


def test_the_command_uses_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "toolexec.toml"
    file.write_text(
        '[sandboxes]\nimage = "team/tools"\n[[sandboxes.plugins]]\nkind = "kubernetes"\nnamespace = "ours"\njobs = true\n'
    )
    done = run("-c", str(file), "--runtime-class", "kata", "--pool", "python")
    assert done.exit_code == 0, done.output
    made = by_kind(list(yaml.safe_load_all(done.stdout)))
    assert made["Namespace"]["metadata"]["name"] == "ours"
    assert "jobs" in {each["resources"][0] for each in made["Role"]["rules"]}
    pod = made["SandboxTemplate"]["spec"]["podTemplate"]["spec"]
    assert pod["runtimeClassName"] == "kata"
    assert pod["containers"][0]["image"] == "team/tools"


def test_the_command_prints_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("-n", "code", "--json")
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert made["kind"] == "List"
    assert made["items"] == make_manifest(KubernetesConfig(namespace="code"))


def test_a_name_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("-n", "No Name")
    assert done.exit_code == 2
    assert "not a name of a namespace" in done.output
