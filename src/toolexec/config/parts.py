"""The parts of a gateway that settings describe, without anything outside of this process being touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, ValidationError

from toolexec.code.limits import Limits
from toolexec.config.blocks import BLOCKS, KEYS
from toolexec.config.declared import Block, keys_for, of, read, values_for
from toolexec.config.kinds import ListOf, Seconds, kind_of
from toolexec.config.loaded import LoadedConfig
from toolexec.config.mistakes import Mistakes
from toolexec.durable.journals import make_journal
from toolexec.durable.record import Record
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.errors.hints import did_you_mean
from toolexec.exec.options import Options
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.run.context_settings import ContextSettings
from toolexec.run.settings import (
    ApprovalSettings,
    BreakerSettings,
    BulkheadSettings,
    CacheSettings,
    PolicySettings,
    RetrySettings,
)
from toolexec.runtime.remote.keys import SigningKey
from toolexec.runtime.remote.proxmox_settings import ProxmoxSettings
from toolexec.runtime.remote.server_settings import RuntimeServerSettings, TenantQuota
from toolexec.runtime.remote.settings import RemoteSettings
from toolexec.server.http import HttpSettings
from toolexec.server.http.settings import check_exposure
from toolexec.server.settings import ServeSettings, TaskSettings

if TYPE_CHECKING:
    from toolexec.config.blocks import AuthBlock
    from toolexec.durable.engine import DurableEngine
    from toolexec.durable.journal import Journal
    from toolexec.run.code_shares import CodeShares
    from toolexec.run.gate import GatePart
    from toolexec.run.layers.cache import Cache
    from toolexec.run.layers.rate_limit import RateLimit
    from toolexec.run.policy import Policy, Rule
    from toolexec.runtime.egress.policy import Secret
    from toolexec.runtime.sandboxes import SandboxSettings
    from toolexec.server.auth import ApiKey, AuthSettings

_REFERENCE: Final = "secretref:"


def rule(data: Any) -> Rule:
    """Return one rule of the policy; raises ConfigurationError."""
    from toolexec.run.policy import Rule

    return Rule.from_dict(data)


def policy(loaded: LoadedConfig) -> Policy:
    """Return the policy; raises ConfigurationError."""
    from toolexec.run.policy import Policy

    block = loaded.settings.policy
    return Policy([rule(each) for each in block.rules], **values_for(PolicySettings, block))


def code_shares(loaded: LoadedConfig) -> CodeShares:
    """Return how many runs of code of one caller take place at a time: half of them where nothing else is set."""
    from toolexec.run.code_shares import CodeShares

    settings = loaded.settings
    max_running: int = settings.get("sandboxes.max_running")
    return CodeShares(settings.limits.code_per_caller or max(1, max_running // 2))


def rate_limit(loaded: LoadedConfig) -> RateLimit | None:
    """Return the rate limits; None where there are none."""
    block = loaded.settings.limits
    rates: dict[str, Any] = {
        "overall": block.rate or None,
        "per_caller": block.rate_per_caller or None,
        "per_tool": block.rate_per_tool or None,
        "per_backend": block.rate_per_backend or None,
    }
    if not any(rates.values()):
        return None
    from toolexec.run.layers.rate_limit import RateLimit

    return RateLimit(**rates)


class _CacheRuleEntry(Block):
    tools: str = Field(description="a pattern of tool IDs, such as weather:*")
    ttl: Seconds = Field(description="for how long answers are kept")


class _FallbackEntry(Block):
    tools: str = Field(description="a pattern of tool IDs, such as maps:*")
    to: ListOf[str] = Field(description="a list of IDs of other tools")


def cache_rule(data: object) -> tuple[str, float]:
    """Return the pattern and the seconds of one rule of the cache; raises ConfigurationError."""
    entry = _entry(_CacheRuleEntry, data, "a rule of the cache")
    if not entry["ttl"] >= 0:
        raise ConfigurationError("ttl of a rule of the cache must be 0 or more")
    return entry["tools"], entry["ttl"]


def fallback(data: object) -> tuple[str, tuple[str, ...]]:
    """Return a pattern and the tools that answer in place of those; raises ConfigurationError."""
    entry = _entry(_FallbackEntry, data, "a fallback")
    return entry["tools"], entry["to"]


def cache(loaded: LoadedConfig) -> Cache | None:
    """Return the cache, if it is wanted; raises ConfigurationError for a file that cannot be used."""
    if not loaded.has("cache"):
        return None
    from toolexec.run.layers.cache import Cache

    block = loaded.settings.cache
    return Cache(rules=dict(map(cache_rule, block.rules)), **values_for(CacheSettings, block))


def resilience(loaded: LoadedConfig) -> dict[str, GatePart]:
    """Return the parts of a gate that keep calls going when backends fail, by their names there; without the ledger,
    which is a file. Raises ConfigurationError."""
    if not loaded.has("resilience"):
        return {}
    from toolexec.run.layers.breaker import Breaker
    from toolexec.run.layers.bulkhead import Bulkhead
    from toolexec.run.layers.fallback import Fallback
    from toolexec.run.layers.retry import Retry

    block = loaded.settings.resilience
    made: dict[str, GatePart] = {"fallback": Fallback(dict(map(fallback, block.fallbacks)))}
    bulkhead, breaker, retry = (values_for(each, block) for each in (BulkheadSettings, BreakerSettings, RetrySettings))
    if bulkhead["limit"]:  # 0, by which files say that they want none, makes no sense to the part itself
        made["bulkhead"] = Bulkhead(**bulkhead)
    if breaker["failures"]:
        made["breaker"] = Breaker(**breaker)
    if retry["attempts"] > 1:
        made["retry"] = Retry(**retry)
    return made


class _ApiKeyEntry(Block):
    id: str = Field(description="a text; `toolexec keys new ID` prints both")
    sha256: str = Field(description="a text; `toolexec keys new ID` prints both")
    roles: ListOf[str] = ()
    scopes: ListOf[str] = ()
    tenant: str = ""
    expires: str = ""


class _EgressSecretEntry(Block):
    placeholder: str = Field(description="the text that code uses in its place")
    value: str = Field(description="a reference, such as secretref:env:API_TOKEN")
    hosts: ListOf[str] = ()
    where: ListOf[str] = ()
    plain_http: bool = False


def _entry(model: type[Block], data: object, subject: str) -> dict[str, Any]:
    """Return what *data* gives of *model*; raises ConfigurationError, which has no value of it."""
    try:
        entry = model.model_validate(data)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)
        first = next((each for each in wrong if each["type"] == "extra_forbidden"), wrong[0])
        name, known = str(first["loc"][0]), model.model_fields
        if name not in known:
            raise ConfigurationError(f"unknown key {name} of {subject}; {did_you_mean(name, known)}") from None
        if known[name].is_required():
            raise ConfigurationError(f"{subject} needs {name}, {known[name].description}") from None
        raise ConfigurationError(f"{name} of {subject} must be {kind_of(known[name]).expects}") from None
    return {name: getattr(entry, name) for name in entry.model_fields_set}


def api_key(data: object) -> ApiKey:
    """Return one API key; raises ConfigurationError, which says nothing of its values."""
    from toolexec.server.auth import ApiKey

    return ApiKey(**_entry(_ApiKeyEntry, data, "an API key"))


def auth_settings(loaded: LoadedConfig) -> AuthSettings:
    """Return who may use the server; raises ConfigurationError."""
    return auth_of(loaded.settings.auth, has_jwt=loaded.has("auth.jwt"), has_sign_in=loaded.has("auth.sign_in"))


def auth_of(block: AuthBlock, *, has_jwt: bool, has_sign_in: bool) -> AuthSettings:
    """Return who may use a server, or one endpoint of it, as *block* says; raises ConfigurationError."""
    from toolexec.server.auth import AuthSettings, JwtSettings, SignInSettings

    values = values_for(AuthSettings, block)
    values["api_keys"] = tuple(map(api_key, values["api_keys"]))
    jwt = read(JwtSettings, block.jwt) if has_jwt else None
    return AuthSettings(**values, jwt=jwt, sign_in=read(SignInSettings, block.sign_in) if has_sign_in else None)


def http_settings(loaded: LoadedConfig) -> HttpSettings:
    """Return how the server listens; raises ConfigurationError."""
    settings = loaded.settings
    # Not `read(ServeSettings, ...)`, which would look at keys that are still references to secrets.
    return read(HttpSettings, settings.http, settings.server, sse=settings.get("server.transport") == "sse")


def serve_settings(loaded: LoadedConfig) -> ServeSettings:
    """Return what the server offers; raises ConfigurationError."""
    settings = loaded.settings
    return read(
        ServeSettings,
        settings.server,
        approval_timeout=read(ApprovalSettings, settings.approval).timeout,
        tasks=read(TaskSettings, settings.tasks),
        http=http_settings(loaded),
        auth=auth_settings(loaded),
    )


def exec_options(loaded: LoadedConfig, base: Options, *, only_given: bool = False) -> Options:
    """Return the options of an Exec that the settings describe, upon *base*; with *only_given*, only those
    that are set.

    Raises ConfigurationError, and InvalidLimitsError for limits of code.
    """
    from dataclasses import replace

    paths = {
        name: f"{block}.{called}"
        for block in ("limits", "code", "durable", "cassette")
        for name, called in keys_for(Options, BLOCKS[block]).items()
    }
    settings = loaded.settings
    values = values_for(Options, settings.limits, settings.code, settings.durable, settings.cassette)
    if settings.durable.postgres:
        paths["journal"], values["journal"] = "durable.postgres", settings.durable.postgres
    wanted = {
        name: values[name] for name, path in paths.items() if not only_given or loaded.values[path].layer != "default"
    }
    if (of_code := code_limits(loaded)) is not None:
        wanted["code_limits"] = of_code
    if any(loaded.has(block) for block in ("sandboxes", "sandboxes.remote", "sandboxes.proxmox")):
        wanted["runtime_backends"] = sandbox_settings(loaded)
    if loaded.has("context"):
        wanted["context"] = read(ContextSettings, settings.context)
    if loaded.journals:
        wanted["journal"] = journal(loaded)
    if loaded.queues:
        wanted["queues"] = {**base.queues, **loaded.queues}
    return replace(base, **wanted)


def record(loaded: LoadedConfig) -> Record | None:
    """Return which runs are recorded; None where none are, or nothing is said of that."""
    found = read(Record, loaded.settings.record)
    return found if found.share else None


def code_limits(loaded: LoadedConfig) -> Limits | None:
    """Return the limits of code; None where there are none. Raises InvalidLimitsError."""
    given = values_for(Limits, loaded.settings.limits)
    return Limits(**given) if any(given.values()) else None


def journal(loaded: LoadedConfig) -> Journal | DurableEngine:
    """Return the journal of a package or plugin that is set up; raises ConfigurationError for several ones, and as
    `make_journal`."""
    kind, *others = loaded.journals
    if others:
        raise ConfigurationError(
            f"durable runs have one journal: set up [durable.{kind}] or [durable.{others[0]}], not both"
        )
    return make_journal(kind, _given(loaded, kind))


def _given(loaded: LoadedConfig, kind: str) -> JSONDict:
    """Return what is set of the settings of one kind of journal."""
    return {name: value.value for name, value in loaded.journals[kind].items() if value.layer != "default"}


def sandbox_settings(loaded: LoadedConfig) -> SandboxSettings:
    """Return which sandboxes there are; raises ConfigurationError."""
    from toolexec.runtime.egress.policy import Egress
    from toolexec.runtime.sandboxes import SandboxSettings

    block = loaded.settings.sandboxes
    values = values_for(SandboxSettings, block)
    hosts, tables = values.pop("egress"), block.egress_secrets
    plugins = values["plugins"] = _by_kind(values["plugins"])
    for kind, settings in loaded.moved.items():
        plugins[kind] = {**settings, **plugins.get(kind, {})}
    for kind in {*values["use"]} & {*loaded.journals}:  # where its journals are, its sandboxes are, too
        plugins[kind] = {**_given(loaded, kind), **plugins.get(kind, {})}
    if tables and not hosts:
        raise ConfigurationError("sandboxes.egress_secrets go nowhere without hosts; name those in sandboxes.egress")
    secrets = dict(map(egress_secret, tables))
    egress = Egress(hosts=hosts, secrets=secrets) if hosts else None
    return SandboxSettings(**values, egress=egress, remote=remote_settings(loaded), proxmox=proxmox_settings(loaded))


def _by_kind(tables: Sequence[JSONObject]) -> dict[str, JSONObject]:
    """Return the settings of sandboxes of plugins by kind; raises ConfigurationError for a table without one."""
    found: dict[str, JSONObject] = {}
    for table in tables:
        own = dict(table)
        kind = own.pop("kind", None)
        if not isinstance(kind, str):
            raise ConfigurationError("sandboxes.plugins: each table needs the kind of a sandbox")
        if kind in found:
            raise ConfigurationError(f"sandboxes.plugins: there are two tables of the kind {kind}")
        found[kind] = own
    return found


def remote_settings(loaded: LoadedConfig) -> RemoteSettings | None:
    """Return where the remote runtimes are; None where there are none. Raises ConfigurationError."""
    if not loaded.settings.get("sandboxes.remote.endpoints"):
        return None
    return read(RemoteSettings, loaded.settings.sandboxes.remote)


def proxmox_settings(loaded: LoadedConfig) -> ProxmoxSettings | None:
    """Return which containers of Proxmox VE run code; None where there are none. Raises ConfigurationError."""
    if not loaded.settings.get("sandboxes.proxmox.url"):
        return None
    return read(ProxmoxSettings, loaded.settings.sandboxes.proxmox)


class _RemoteKeyEntry(Block):
    id: str = Field(description="a text that names the key")
    token: str = Field(
        description="a text of 16 characters or more, or a reference, such as secretref:env:RUNTIME_TOKEN"
    )
    secret: str = ""
    tenant: str = ""
    expires: str = ""


@of(TenantQuota)
class _QuotaEntry(Block):
    tenant: str = Field(description="a text that names the tenant")


def remote_key(data: Mapping[str, object]) -> SigningKey:
    """Return a key of remote runtimes, with the values of its references; raises ConfigurationError."""
    from toolexec.backend.secrets import SecretResolver

    entry = _entry(_RemoteKeyEntry, data, "a key of a remote runtime")
    resolver, name = SecretResolver(), f"the key {entry['id']} of a remote runtime"
    for secret in ("token", "secret"):
        entry[secret] = resolver.resolve(entry.get(secret, ""), f"{secret} of {name}")
    if expires := entry.pop("expires", ""):
        try:
            when = datetime.fromisoformat(expires)
        except ValueError as error:
            raise ConfigurationError(f"expires of {name} must be a date, such as 2027-01-31: {error}") from None
        entry["expires"] = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
    return SigningKey(**entry)


def runtime_server_settings(loaded: LoadedConfig) -> RuntimeServerSettings:
    """Return how sandboxes are lent to other machines; raises ConfigurationError."""
    from toolexec.backend.secrets import SecretResolver

    block = loaded.settings.runtime_server
    values = values_for(RuntimeServerSettings, block)
    quota = read(TenantQuota, block)
    quotas = [TenantQuota(**_entry(_QuotaEntry, each, "a quota")) for each in values.pop("quotas")]
    keys = [remote_key(each) for each in values.pop("keys")]
    values["metrics_token"] = SecretResolver().resolve(values["metrics_token"], "runtime_server.metrics_token")
    return RuntimeServerSettings(**values, keys=keys, quota=quota, quotas=quotas)


def egress_secret(data: Mapping[str, object]) -> tuple[str, Secret]:
    """Return a placeholder and its secret; raises ConfigurationError, which says nothing of its value."""
    from toolexec.runtime.egress.policy import Secret

    entry: dict[str, Any] = {"hosts": (), **_entry(_EgressSecretEntry, data, "an egress secret")}
    placeholder, value = entry.pop("placeholder"), entry.pop("value")
    if not value.startswith(_REFERENCE):
        raise ConfigurationError(
            f"the value of the egress secret {placeholder} must be a reference, such as secretref:env:API_TOKEN"
        )
    return placeholder, Secret(ref=value.removeprefix(_REFERENCE), **entry)


# -- what can be wrong with settings that are fine one by one -------------------------------------------


def check_parts(loaded: LoadedConfig, mistakes: Mistakes, *, serving: bool = False) -> None:
    """Add to *mistakes* what the parts that the settings describe say of them; with *serving*, also what would make the
    server open to others than it should. Parts that are not configured are left alone."""
    before = len(mistakes)
    _check_each(loaded, "policy.rules", rule, mistakes)
    _check_each(loaded, "auth.api_keys", api_key, mistakes)
    _check_each(loaded, "sandboxes.egress_secrets", egress_secret, mistakes)
    _check_each(loaded, "cache.rules", cache_rule, mistakes)
    _check_each(loaded, "resilience.fallbacks", fallback, mistakes)
    if len(mistakes) > before:
        return  # the whole cannot be better than its pieces
    sign_in = ("auth.sign_in",) if loaded.has("auth.sign_in") else ()
    wholes: tuple[tuple[tuple[str, ...], Callable[[LoadedConfig], Any]], ...] = (
        (("policy",), policy),
        (("limits", "code", "sandboxes", "sandboxes.remote", "sandboxes.proxmox"), _options),
        (("auth", "auth.jwt", *sign_in), auth_settings),
        (("http", "server"), http_settings),
        (("resilience",), resilience),
    )
    sound = True
    for blocks, make in wholes:
        if not serving and not any(loaded.has(block) for block in blocks):
            continue
        try:
            make(loaded)
        except ToolExecError as error:
            sound = False
            mistakes.add(_place(loaded, *blocks), error.message)
    if serving and sound:
        _check_serving(loaded, mistakes)


def _check_each(loaded: LoadedConfig, path: str, make: Callable[[Any], Any], mistakes: Mistakes) -> None:
    value = loaded.values[path]
    for number, each in enumerate(value.value):
        try:
            make(each)
        except ConfigurationError as error:
            mistakes.add(value.where((number,)), f"{path}[{number}]: {error.message}")


def _options(loaded: LoadedConfig) -> Any:
    return exec_options(loaded, Options())


def _check_serving(loaded: LoadedConfig, mistakes: Mistakes) -> None:
    try:
        settings = serve_settings(loaded)
        if settings.transport != "stdio":
            check_exposure(settings.http, settings.auth)
    except ConfigurationError as error:
        mistakes.add("", error.message)


def _place(loaded: LoadedConfig, *blocks: str) -> str:
    """Return where the first value that is set in these blocks stands, and which blocks they are."""
    given = (loaded.values[path] for path, key in KEYS.items() if key.block in blocks)
    where = next((value.where(()) or value.origin for value in given if value.layer != "default"), "")
    names = " and ".join(f"[{block}]" for block in blocks)
    return f"{where}: {names}" if where else names
