"""The endpoints of a configuration: what `[endpoints.NAME]` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import ValidationError

from toolexec.config import parts
from toolexec.config.blocks import AuthBlock, PolicyBlock
from toolexec.config.declared import Block, entry, of, read, values_for
from toolexec.config.entries import ENDPOINTS, EndpointEntry
from toolexec.config.formats import Place
from toolexec.config.kinds import ListOf, kind_of
from toolexec.config.mistakes import Mistakes
from toolexec.config.toolsets import BLOCK as TOOLSETS
from toolexec.config.toolsets import toolset_of
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONObject
from toolexec.run.settings import PolicySettings
from toolexec.server.endpoint_settings import EndpointSettings, check_endpoints

if TYPE_CHECKING:
    from toolexec.config.loaded import LoadedConfig
    from toolexec.run.endpoint_rules import RulesAt


@of(EndpointSettings, after={"toolsets": "expose"})
class EndpointBlock(Block):
    """One more endpoint of toolexec serve over HTTP, with tools, a policy and callers of its own."""

    toolsets: ListOf[str] = entry((), "The toolsets that there are for its clients, together; empty: every tool.")
    auth: AuthBlock = AuthBlock.model_construct()
    policy: PolicyBlock = PolicyBlock.model_construct()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One endpoint as it is set up: `rules` and `policy` are what its own policy says, without what [policy] does.
    `block` is its table, and `origin` where that is."""

    settings: EndpointSettings
    toolsets: tuple[str, ...] = ()
    rules: tuple[JSONObject, ...] = ()
    policy: JSONObject
    block: EndpointBlock = field(repr=False, compare=False)
    origin: str = field(compare=False)


def read_endpoints(entries: Mapping[str, EndpointEntry], known: JSONObject, mistakes: Mistakes) -> dict[str, Endpoint]:
    """Return the endpoints by name; what is wrong with one is added to *mistakes*. *known* are the toolsets that are
    defined, those with mistakes of their own, too."""
    found: dict[str, Endpoint] = {}
    for name, given in entries.items():
        before = len(mistakes)
        made = _read(name, given, mistakes)
        for number, each in enumerate(made.toolsets if made is not None else ()):
            if each not in known:
                hint = did_you_mean(each, known) or f"write one as [{TOOLSETS}.{each}]"
                where = given.where(("toolsets", number))
                mistakes.add(where, f"{ENDPOINTS}.{name}.toolsets: there is no toolset {each!r}; {hint}")
        if made is not None and len(mistakes) == before:
            found[name] = made
    return found


def check_served(loaded: LoadedConfig, mistakes: Mistakes) -> None:
    """Add to *mistakes* what would leave an endpoint open to others than it should be, and paths that are taken."""
    if not loaded.endpoints or len(mistakes):
        return
    try:
        server = parts.serve_settings(loaded)
        check_endpoints((each.settings for each in loaded.endpoints.values()), server.http, server.auth)
    except ConfigurationError as error:
        mistakes.add("", error.message)


def rules_at(loaded: LoadedConfig) -> dict[str, RulesAt]:
    """Return what holds at the main endpoint (""), and at each other one. Rules of [policy] hold everywhere, those of
    an endpoint beside them. Raises ConfigurationError."""
    from toolexec.run.endpoint_rules import RulesAt
    from toolexec.run.policy import Policy

    main = parts.policy(loaded)
    served = toolset_of(loaded, loaded.settings.server.toolsets)
    found = {"": RulesAt(policy=main, toolset=served)}
    general = values_for(PolicySettings, loaded.settings.policy)
    for name, endpoint in loaded.endpoints.items():
        rules = [
            parts.rule({"name": f"{name}, rule {number}", **each}) for number, each in enumerate(endpoint.rules, 1)
        ]
        policy = Policy([*main.rules, *rules], **{**general, **endpoint.policy})
        found[name] = RulesAt(policy=policy, toolset=toolset_of(loaded, endpoint.toolsets))
    return found


def _read(name: str, given: EndpointEntry, mistakes: Mistakes) -> Endpoint | None:
    """Return one endpoint; None where something is wrong with it."""
    data = given.data
    if not isinstance(data, Mapping):
        mistakes.add(given.where(()), f"{ENDPOINTS}.{name} must be a table of settings")
        return None
    try:
        block = EndpointBlock.model_validate(data, context=given.directory)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            mistakes.add(given.where(each["loc"]), _problem(name, each["loc"], each["type"]))
        return None
    try:
        there = block.auth.model_fields_set
        auth = parts.auth_of(block.auth, has_jwt="jwt" in there, has_sign_in="sign_in" in there)
        settings = read(EndpointSettings, block, name=name, auth=auth)
        given_keys = block.policy.model_fields_set
        policy = {key: value for key, value in values_for(PolicySettings, block.policy).items() if key in given_keys}
        for each in block.policy.rules:
            parts.rule(each)
    except ConfigurationError as error:
        mistakes.add(given.where(()), f"{ENDPOINTS}.{name}: {error.message}")
        return None
    return Endpoint(
        settings=settings,
        toolsets=block.toolsets,
        rules=block.policy.rules,
        policy=policy,
        block=block,
        origin=given.origin,
    )


def _problem(name: str, place: Place, error: str) -> str:
    """Return what is wrong at a place in an endpoint's table; pydantic may name a part of a value there."""
    model: type[Block] = EndpointBlock
    path = f"{ENDPOINTS}.{name}"
    for each in map(str, place):
        path = f"{path}.{each}"
        field = model.model_fields.get(each)
        if field is None:
            return f"unknown key {path}; {did_you_mean(each, model.names())}"
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, Block)):
            return f"{path} must be {kind_of(field).expects}"
        model = field.annotation
    return f"{path} must be a table of settings" if error != "missing" else f"{path} is missing"
