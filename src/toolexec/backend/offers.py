"""What a backend offers beside tools: resources, templates of resources, and prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from toolexec.discovery.index import Registered
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue

OfferKind: TypeAlias = Literal["prompt", "resource", "template", "completion"]


@dataclass(frozen=True, slots=True)
class Offered:
    """One offer: `entry` is what the gate decides on, as it does for a tool, `remote` the name, the URI or the template
    at the backend, `listed` its definition in MCP's spelling, without what hides in it."""

    kind: OfferKind
    entry: Registered
    remote: str
    listed: JSONObject = field(default_factory=JSONDict)

    @property
    def id(self) -> str:
        """By what rules know it."""
        return self.entry.tool.id

    @property
    def name(self) -> str:
        """Its ID without the mark of its kind: what a prompt is called here."""
        return self.entry.tool.id.rpartition(":+")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """All that one backend offers, in its order. `unlisted` is for the URIs of resources that it does not list, and
    `completion` completes arguments; None where there is nothing of that kind. `refuses` says which URIs cannot be read
    although a template fits them, or unlisted ones can be; None: all can. `faults` says what is missing, and why."""

    prompts: Sequence[Offered] = ()
    resources: Sequence[Offered] = ()
    templates: Sequence[Offered] = ()
    unlisted: Offered | None = None
    completion: Offered | None = None
    refuses: Callable[[str], bool] | None = None
    faults: JSONObject = field(default_factory=JSONDict)
    _ids: dict[str, Offered] = field(init=False, repr=False, compare=False, default_factory=dict[str, Offered])
    _uris: dict[str, Offered] = field(init=False, repr=False, compare=False, default_factory=dict[str, Offered])

    def __post_init__(self) -> None:
        self._ids.update((offered.id, offered) for offered in self.every())
        self._uris.update((offered.remote, offered) for offered in self.resources)

    def every(self) -> Iterable[Offered]:
        """Yield all of them."""
        yield from self.prompts
        yield from self.resources
        yield from self.templates
        yield from (offered for offered in (self.unlisted, self.completion) if offered is not None)

    def find(self, offer_id: str) -> Offered | None:
        """Return the offer with this ID."""
        return self._ids.get(offer_id)

    def completes(self, ref: JSONValue) -> bool:
        """Return whether this is a reference, as MCP has it, to a prompt or a template that is offered."""
        if not isinstance(ref, Mapping):
            return False
        is_prompt = ref.get("type") == "ref/prompt"
        remote = ref.get("name" if is_prompt else "uri")
        return any(offered.remote == remote for offered in (self.prompts if is_prompt else self.templates))

    def of_uri(self, uri: str) -> Offered | None:
        """Return what a resource is read by: the listed one with this URI, else the most exact template that it fits,
        else what is for unlisted ones; None where it cannot be read."""
        found = self._uris.get(uri)
        if found is not None:
            return found
        if self.refuses is not None and self.refuses(uri):
            return None
        fitting = [template for template in self.templates if fits_template(template.remote, uri)]
        return max(fitting, key=lambda template: _literal_size(template.remote), default=self.unlisted)


@dataclass(frozen=True, slots=True)
class OfferEvent:
    """What has changed: a list (`resources` or `prompts`), or with `updated` what the resource *uri* holds."""

    kind: Literal["resources", "prompts", "updated"]
    uri: str = ""


OfferListener: TypeAlias = Callable[[OfferEvent], None]


def fits_template(template: str, uri: str) -> bool:
    """Return whether *uri* may be made of *template*: whether it has all parts of it that are not variables, in their
    order. The time is linear in both, whatever a server has for a template."""
    literals = _literals(template)
    if len(literals) == 1:
        return uri == template
    first, *middle, last = literals
    if len(uri) < len(first) + len(last) or not (uri.startswith(first) and uri.endswith(last)):
        return False
    at, end = len(first), len(uri) - len(last)
    for literal in middle:
        found = uri.find(literal, at, end)
        if found < 0:
            return False
        at = found + len(literal)
    return True


def _literals(template: str) -> list[str]:
    """Return what stands before, between and after the variables."""
    found: list[str] = []
    at = 0
    while (begin := template.find("{", at)) >= 0 and (end := template.find("}", begin)) >= 0:
        found.append(template[at:begin])
        at = end + 1
    return [*found, template[at:]]


def _literal_size(template: str) -> int:
    return sum(map(len, _literals(template)))
