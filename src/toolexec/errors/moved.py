"""Where settings and commands are now that had another place before: the one table of them.

Files, variables and flags are still read by an old key, with a hint at the new one; Python and the command line refuse
an old name, and say where it is now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_TABLE: Final = "SandboxSettings"


class MovedSetting(NamedTuple):
    """The place of a setting that was one of [sandboxes]: `name` in the table of `sandboxes.plugins` for `kind`.

    Values of the type `fits` are read; `expects` finishes the sentence "must be ...".
    """

    kind: str
    name: str
    fits: type = str
    expects: str = "a text"

    def is_fit(self, value: Any) -> bool:
        """Return whether *value* is of the type that the setting has."""
        return isinstance(value, self.fits)


MOVED_SETTINGS: Final[Mapping[str, MovedSetting]] = {
    "sandboxes.kubeconfig": MovedSetting("kubernetes", "kubeconfig"),
    "sandboxes.kube_context": MovedSetting("kubernetes", "context"),
    "sandboxes.kube_namespace": MovedSetting("kubernetes", "namespace"),
    "sandboxes.kube_runtime_class": MovedSetting("kubernetes", "runtime_class"),
    "sandboxes.kube_service_account": MovedSetting("kubernetes", "service_account"),
    "sandboxes.kube_node_selector": MovedSetting("kubernetes", "node_selector", dict, "a table"),
    "sandboxes.kube_tolerations": MovedSetting("kubernetes", "tolerations", list, "a list of tables"),
    "sandboxes.kube_pull_secrets": MovedSetting("kubernetes", "pull_secrets", list, "a list of strings"),
    "sandboxes.kube_jobs": MovedSetting("kubernetes", "jobs", bool, "true or false"),
    "sandboxes.kube_network": MovedSetting("kubernetes", "network"),
    "sandboxes.temporal": MovedSetting("temporal", "inner", expects="a kind of sandbox"),
}
"""The settings that have another place, by their former path in files."""

MOVED_COMMANDS: Final[Mapping[str, str]] = {"kube": "sandbox kubernetes"}
"""The groups of the command line that have another place, by their former names."""


def moved_setting(path: str) -> str:
    """Return what to write in place of a setting of a class in Python that has another place now; empty for all others.

    >>> moved_setting("SandboxSettings.kube_jobs")
    'it is now plugins={"kubernetes": {"jobs": ...}}'
    """
    owner, _, name = path.partition(".")
    moved = MOVED_SETTINGS.get(f"sandboxes.{name}") if owner == _TABLE else None
    return f'it is now plugins={{"{moved.kind}": {{"{moved.name}": ...}}}}' if moved is not None else ""
