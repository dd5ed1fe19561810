"""Prompts and resources as they are shown: other names and descriptions than those of their servers, or none at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from toolexec.backend.offers import Offered, Offers
from toolexec.backend.uris import decoded, is_closed
from toolexec.discovery.index import Registered
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.tool import Tool
from toolexec.model.transform import ToolTransform, Transforms


def shown_offers(offers: Offers, transforms: Transforms) -> Offers:
    """Return what a backend offers as the transforms show it, each by the ID that it has without them.

    What is hidden, and what its transform does not fit, is not there: it is not listed, and no other ID and no template
    leads to it. The faults have the reason for the latter.
    """
    shower = _Shower(transforms, {offered.id for offered in offers.every()})
    prompts, resources = shower.shown(offers.prompts), shower.shown(offers.resources)
    templates = shower.shown(offers.templates)
    others = [shower.shown([each])[:1] if each is not None else [] for each in (offers.unlisted, offers.completion)]
    gone = [each for each in shower.gone if each in offers.resources or each in offers.templates]
    unlisted, completion = (found[0] if found else None for found in others)
    return replace(
        offers,
        prompts=prompts,
        resources=resources,
        templates=templates,
        unlisted=unlisted,
        completion=completion,
        refuses=_refusing(offers.refuses, gone) if gone else offers.refuses,
        faults={**offers.faults, **shower.faults},
    )


class _Shower:
    def __init__(self, transforms: Transforms, taken: set[str]) -> None:
        self._transforms = transforms
        self._taken = taken
        self.gone: list[Offered] = []
        self.faults: JSONDict = {}

    def shown(self, offers: Sequence[Offered]) -> list[Offered]:
        found: list[Offered] = []
        for offered in offers:
            transform = self._transforms.given(offered.id)
            if transform is None:
                found.append(offered)
                continue
            if not transform.hide:
                try:
                    shown = self._shown(offered, transform)
                    if shown.id != offered.id and shown.id in self._taken:
                        raise ConfigurationError(f"the transform of {offered.id}: there is a {shown.id} already")
                except ToolExecError as error:
                    self.faults[offered.id] = error.message
                else:
                    self._taken.add(shown.id)
                    found.append(shown)
                    continue
            self.gone.append(offered)
        return found

    def _shown(self, offered: Offered, transform: ToolTransform) -> Offered:
        is_prompt = offered.kind == "prompt"
        for part in ("annotations", "examples") if is_prompt else ("annotations", "examples", "arguments"):
            if getattr(transform, part):
                raise ConfigurationError(f"the transform of {offered.id}: a {offered.kind} has no {part} to change")
        if is_prompt:
            for name, given in transform.arguments.items():
                for part in ("value", "default"):
                    if not isinstance(given.get(part, ""), str):
                        message = f"the {part} of {name!r} must be a string, as all arguments of prompts are"
                        raise ConfigurationError(f"the transform of {offered.id}: {message}")
        else:  # its ID is made of its URI, and its name is what people read
            title = transform.title or str(offered.listed.get("title") or transform.name)
            transform = replace(transform, name="", title=title)
        tool = self._transforms.apply(offered.entry.tool, transform)
        listed = _listed(offered, self._transforms.given(offered.id) or transform, tool)
        entry = Registered(tool, offered.entry.bindings, offered.entry.binding)
        return Offered(offered.kind, entry, offered.remote, listed)


def _listed(offered: Offered, transform: ToolTransform, tool: Tool) -> JSONDict:
    """Return the definition in MCP's spelling."""
    parts = ("title", "description") if offered.kind == "prompt" else ("name", "title", "description")
    data: JSONDict = {**offered.listed, **{part: text for part in parts if (text := getattr(transform, part))}}
    if offered.kind == "prompt" and transform.arguments:
        schema = tool.input_schema.to_json()
        data["arguments"] = [_argument(name, own, schema) for name, own in schema["properties"].items()]
    return data


def _argument(name: str, own: JSONObject, schema: JSONObject) -> JSONDict:
    described = {key: own[key] for key in ("title", "description") if key in own}
    return {"name": name, **described, "required": name in schema.get("required", ())}


def _refusing(before: Callable[[str], bool] | None, gone: Sequence[Offered]) -> Callable[[str], bool]:
    """Return what says that a URI cannot be read: as *before*, and those of resources and templates that are *gone*."""
    uris = {spelt for offered in gone if offered.kind == "resource" for spelt in _spellings(offered.remote)}
    templates = [offered.remote for offered in gone if offered.kind == "template"]

    def refuses(uri: str) -> bool:
        return (before is not None and before(uri)) or is_closed(uri, uris.__contains__, templates)

    return refuses


def _spellings(uri: str) -> set[str]:
    return {uri, decoded(uri) or uri}
