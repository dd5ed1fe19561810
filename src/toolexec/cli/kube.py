"""`toolexec kube`: what a Kubernetes cluster needs for the sandbox."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolexec.cli.options import AsJson, Config

if TYPE_CHECKING:
    from toolexec.cli.terminal import Screen

__all__ = ["kube"]

kube: typer.Typer = typer.Typer(no_args_is_help=True, help="Prepare a Kubernetes cluster for code.")


@kube.callback()
def group() -> None:
    """Prepare a Kubernetes cluster for code."""


@kube.command("manifest")
def manifest(
    context: typer.Context,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Where pods are made. Default: toolexec.")] = "",
    account: Annotated[str, typer.Option(metavar="NAME", help="The ServiceAccount for toolexec.")] = "toolexec",
    runtime_class: Annotated[
        str, typer.Option(metavar="NAME", help="The RuntimeClass that pods use, which toolexec may then look at.")
    ] = "",
    jobs: Annotated[bool, typer.Option("--jobs", help="Allow Jobs, for kube_jobs.")] = False,
    pods: Annotated[int, typer.Option(metavar="N", min=0, help="A quota of N pods of the usual size.")] = 0,
    pool: Annotated[
        str, typer.Option(metavar="NAME", help="A warm pool for the controller of agent-sandbox, of pods for Python.")
    ] = "",
    replicas: Annotated[int, typer.Option(metavar="N", min=0, help="How many pods that pool keeps.")] = 2,
    files: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print what an operator applies to a cluster, once: toolexec kube manifest | kubectl apply -f -

    It is a namespace under the pod security standard `restricted`, a ServiceAccount with the few permissions that the
    sandbox needs, and the NetworkPolicy that keeps its pods from the network. The settings [sandboxes] are used where
    the options say nothing. Nothing is sent anywhere.
    """
    shared, json_too = context.obj

    def work(screen: Screen) -> None:
        from toolexec.cli.serve import load_for_serving
        from toolexec.config.parts import sandbox_settings
        from toolexec.runtime.containers.kubernetes.manifest import make_manifest, to_yaml
        from toolexec.runtime.sandboxes import settings_of

        loaded = load_for_serving((*shared, *(files or ())), {}, [], tools_needed=False)
        config = settings_of("kubernetes", sandbox_settings(loaded))
        given: dict[str, Any] = {"namespace": namespace, "runtime_class": runtime_class, "jobs": jobs}
        config = replace(config, **{name: value for name, value in given.items() if value})
        made = make_manifest(config, account=account, pool=pool, replicas=replicas, pods=pods)
        if screen.as_json:
            screen.document({"apiVersion": "v1", "kind": "List", "items": made})
        else:
            screen.exact(to_yaml(made).rstrip("\n"))

    _within_screen(work, as_json=as_json or json_too)


def _within_screen(work: Any, *, as_json: bool) -> None:
    from toolexec.cli.exit_codes import OK, exit_code
    from toolexec.cli.terminal import Screen, only_results_on_stdout
    from toolexec.errors import ToolExecError

    code = OK
    with only_results_on_stdout() as out:
        screen = Screen(out, as_json=as_json)
        try:
            work(screen)
        except ToolExecError as error:
            screen.error(error)
            code = exit_code(error)
    raise typer.Exit(code)
