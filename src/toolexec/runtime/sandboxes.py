"""All sandboxes that there are, set up together: what an `Exec` uses that brings none of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, TypeAlias

from toolexec.errors import ConfigurationError, ToolExecError, UnsupportedPlatformError
from toolexec.errors.extras import unix_needed
from toolexec.model.settings import unknown_setting
from toolexec.run.run_request import PROFILES
from toolexec.runtime.base import SandboxBackend, judged_kind
from toolexec.runtime.kinds import ELSEWHERE, KINDS, SANDBOXES, plugin_of, positions, present_plugins
from toolexec.runtime.measured import Experiment, recorded_kinds
from toolexec.runtime.plugin import SandboxContext, SandboxPlugin
from toolexec.runtime.router import Runtime
from toolexec.runtime.sandbox_settings import SandboxSettings

__all__ = ["SANDBOXES", "RuntimeBackends", "SandboxSettings", "make_runtime", "make_sandbox", "settings_of"]

RuntimeBackends: TypeAlias = Sequence[SandboxBackend] | Mapping[str, SandboxBackend | Sequence[SandboxBackend]]
"""Sandboxes: a list, or by profile."""


def make_runtime(settings: SandboxSettings | None = None) -> Runtime:
    """Return a runtime with the sandboxes of *settings* (default: all there are, with those of the experimental ones
    that a check on this machine has measured, see `Experiment`). Nothing is started or looked for yet; of all there
    are, those that run code here are made when they are first needed, as their engines take long to import.

    Raises ConfigurationError, as for `remote` or `proxmox_lxc` without settings of its own, MissingExtraError for a
    kind that is named or set up and whose package is absent, and UnsupportedPlatformError for a kind in `use` that this
    operating system cannot have.
    """
    settings = settings or SandboxSettings()
    if settings.use:
        backends = [make_sandbox(kind, settings) for kind in settings.use]
        order = {
            profile: [backend.kind for backend in backends if profile in plugin_of(judged_kind(backend)).profiles]
            for profile in PROFILES
        }
        return Runtime(backends, order=order, route_by_needs=settings.route_by_needs)
    for kind, field in ELSEWHERE.items():
        if getattr(settings, field) is not None:  # else code would run here where its package is absent
            plugin_of(kind)
    recorded = recorded_kinds()
    plugins = present_plugins() + _measured_plugins(recorded)
    experiments: dict[str, Experiment] = {}
    makers: dict[str, Callable[[], SandboxBackend]] = {}
    nothing_set = settings == SandboxSettings()  # then nothing can be wrong, and settings are read when one is made
    for plugin in plugins:
        kind = plugin.kind
        if plugin.experimental and kind not in recorded:  # never measured: no profile chooses it by itself
            continue
        if nothing_set and not plugin.experimental and kind not in ELSEWHERE:
            makers[kind] = partial(make_sandbox, kind, settings)
            continue
        try:
            with unix_needed(f"the sandbox {kind}"):
                own = settings_of(kind, settings)
                if own is None:
                    continue
                if plugin.experimental:
                    experiment = experiments[kind] = Experiment(plugin, own, settings)
                    if not any(map(experiment.may_serve, plugin.profiles)):
                        continue
        except UnsupportedPlatformError:  # those that work here are left
            continue
        makers[kind] = partial(_make_here, plugin, own, settings)
    order = positions(plugins) if experiments else None
    runtime = Runtime(order=order, route_by_needs=settings.route_by_needs, experiments=experiments)
    for kind, make in makers.items():
        if kind in KINDS and kind not in ELSEWHERE:
            runtime.add_later(kind, make)
        else:  # others may run its code, or it is of another distribution, and broken
            with suppress(UnsupportedPlatformError):
                runtime.add(make())
    return runtime


def _measured_plugins(recorded: Collection[str]) -> list[SandboxPlugin]:
    """Return the experimental kinds of other distributions of which there are records."""
    found: list[SandboxPlugin] = []
    for kind in sorted({*recorded} - {*KINDS}):
        with suppress(ConfigurationError):  # it is not installed any more, or broken
            plugin = plugin_of(kind)
            if plugin.experimental:
                found.append(plugin)
    return found


def make_sandbox(kind: str, settings: SandboxSettings) -> SandboxBackend:
    """Return the sandbox of one kind; raises as `make_runtime` does."""
    with unix_needed(f"the sandbox {kind}"):
        return _make(plugin_of(kind), settings_of(kind, settings), settings)


def _make_here(plugin: SandboxPlugin, own: object, settings: SandboxSettings) -> SandboxBackend:
    with unix_needed(f"the sandbox {plugin.kind}"):
        return _make(plugin, own, settings)


def settings_of(kind: str, settings: SandboxSettings) -> Any:
    """Return how the sandbox of one kind is set up under *settings*, as `SandboxPlugin.settings` has it; None for one
    that is not set up. Raises ConfigurationError for settings that it refuses.
    """
    plugin = plugin_of(kind)
    if plugin.read is not None:
        return plugin.read(settings)
    made = plugin.settings_class()
    names = [each.name for each in fields(made)] if is_dataclass(made) else [*getattr(made, "model_fields", ())]
    own = settings.plugins.get(kind, {})
    for name in own:
        if name not in names:
            raise unknown_setting(f"the sandbox {kind}", name, names)
    shared = {name: value for name, value in settings.shared().items() if name in names}
    try:
        return made(**{**shared, **own})
    except ToolExecError:
        raise
    except Exception as error:  # which may quote a secret, and is not kept as the cause for that
        raise ConfigurationError(f"the settings of the sandbox {kind} are wrong: {_wrong_settings(error)}") from None


def _wrong_settings(error: Exception) -> str:
    """Return what is wrong with settings, without their values where pydantic says it."""
    listed = getattr(error, "errors", None)
    if not callable(listed):
        return f"{type(error).__name__}: {error}"
    found: Any = listed(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found)


def _make(plugin: SandboxPlugin, own: object, settings: SandboxSettings) -> SandboxBackend:
    """Return the sandbox of a plugin. Raises ConfigurationError for a plugin that is broken."""
    kind = plugin.kind
    context = SandboxContext(
        image=settings.image,
        warm=settings.warm,
        max_running=settings.max_running,
        egress=settings.egress,
        make=partial(make_sandbox, settings=settings),
    )
    if kind in KINDS:
        return plugin.make(own, context)
    try:
        made: object = plugin.make(own, context)
    except ToolExecError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"the plugin for the sandbox {kind} failed: {type(error).__name__}: {str(error)[:1000]}"
        ) from error
    if not isinstance(made, SandboxBackend) or made.kind != kind:
        raise ConfigurationError(
            f"the plugin for the sandbox {kind} made {type(made).__name__}, which is not a sandbox of that kind"
        )
    return made
