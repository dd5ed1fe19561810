"""`toolexec sandbox kubernetes`: what a Kubernetes cluster needs for the sandbox."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolexec.sandbox import AsJson, Config, with_settings

if TYPE_CHECKING:
    from toolexec.sandbox import Screen
    from toolexec_kubernetes.config import KubernetesConfig

commands: typer.Typer = typer.Typer(no_args_is_help=True, help="Prepare a Kubernetes cluster for code.")


@commands.callback()
def group() -> None:
    """Prepare a Kubernetes cluster for code."""


@commands.command("manifest")
def manifest(
    context: typer.Context,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Where pods are made. Default: toolexec.")] = "",
    account: Annotated[str, typer.Option(metavar="NAME", help="The ServiceAccount for toolexec.")] = "toolexec",
    runtime_class: Annotated[
        str, typer.Option(metavar="NAME", help="The RuntimeClass that pods use, which toolexec may then look at.")
    ] = "",
    jobs: Annotated[bool, typer.Option("--jobs", help="Allow Jobs, for the setting jobs.")] = False,
    pods: Annotated[int, typer.Option(metavar="N", min=0, help="A quota of N pods of the usual size.")] = 0,
    pool: Annotated[
        str, typer.Option(metavar="NAME", help="A warm pool for the controller of agent-sandbox, of pods for Python.")
    ] = "",
    replicas: Annotated[int, typer.Option(metavar="N", min=0, help="How many pods that pool keeps.")] = 2,
    files: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print what an operator applies to a cluster, once: toolexec sandbox kubernetes manifest | kubectl apply -f -

    It is a namespace under the pod security standard `restricted`, a ServiceAccount with the few permissions that the
    sandbox needs, and the NetworkPolicy that keeps its pods from the network. The settings of the sandbox are used
    where the options say nothing. Nothing is sent anywhere.
    """

    def work(config: KubernetesConfig, screen: Screen) -> None:
        from toolexec_kubernetes.manifest import make_manifest, to_yaml

        given: dict[str, Any] = {"namespace": namespace, "runtime_class": runtime_class, "jobs": jobs}
        config = replace(config, **{name: value for name, value in given.items() if value})
        made = make_manifest(config, account=account, pool=pool, replicas=replicas, pods=pods)
        if screen.as_json:
            screen.document({"apiVersion": "v1", "kind": "List", "items": made})
        else:
            screen.exact(to_yaml(made).rstrip("\n"))

    with_settings(context, "kubernetes", work, config=files, as_json=as_json)
