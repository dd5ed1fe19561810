"""Strict validation of objects by the published schema: by classes that are generated from it."""

from __future__ import annotations

import datetime as dt
import re
from functools import cache
from types import SimpleNamespace
from typing import Any

import kubernetes_asyncio.client.models as models
from packages.kubernetes.tests.kube.crd_schema import CRDS
from packages.kubernetes.tests.kube.objects import ApiError, Object, invalid
from packages.kubernetes.tests.kube.resources import Resource

_LIST = re.compile(r"list\[(.*)\]")
_DICT = re.compile(r"dict[(\[]str, (.*)[)\]]")
_MICRO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_MICRO_FIELDS = {"V1LeaseSpec.renew_time", "V1LeaseSpec.acquire_time", "CoreV1Event.event_time"}
_QUANTITIES = {
    "limits",
    "requests",
    "hard",
    "used",
    "capacity",
    "allocatable",
    "default",
    "default_request",
    "overhead",
}


class _Check:
    """What one object violates: `wrong` ends in 400, as a strict decoding error, `lacking` in 422."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.lacking: list[tuple[str, str]] = []

    def value(self, value: Any, kind: str, path: str, field: str) -> None:
        """Check *value*, which is of the type *kind* of the client."""
        if value is None or kind == "object":
            return
        if found := _LIST.fullmatch(kind):
            self._each(value, found[1], path, field)
        elif found := _DICT.fullmatch(kind):
            self._mapping(value, found[1], path, field)
        elif kind == "datetime":
            self._time(value, path, field)
        elif kind in ("str", "int", "bool", "float", "file", "bytes"):
            self._plain(value, kind, path, field)
        else:
            self._object(value, kind, path)

    def _each(self, value: Any, kind: str, path: str, field: str) -> None:
        if not isinstance(value, list):
            self.wrong.append(f'json: cannot unmarshal into field "{path}" of a list: {value!r}')
            return
        for index, each in enumerate(value):
            self.value(each, kind, f"{path}[{index}]", field)

    def _mapping(self, value: Any, kind: str, path: str, field: str) -> None:
        if not isinstance(value, dict):
            self.wrong.append(f'json: cannot unmarshal into field "{path}" of a map: {value!r}')
            return
        for key, each in value.items():
            self.value(each, kind, f"{path}[{key}]", field)

    def _time(self, value: Any, path: str, field: str) -> None:
        if field in _MICRO_FIELDS:
            if not isinstance(value, str) or not _MICRO.fullmatch(value):
                self.wrong.append(f'parsing time {value!r} as "2006-01-02T15:04:05.000000Z07:00" ({path})')
            return
        try:
            if not isinstance(value, str) or dt.datetime.fromisoformat(value).tzinfo is None:
                raise ValueError
        except ValueError:
            self.wrong.append(f'parsing time {value!r} as "2006-01-02T15:04:05Z07:00" ({path})')

    def _plain(self, value: Any, kind: str, path: str, field: str) -> None:
        types = {"str": str, "int": int, "bool": bool, "float": (int, float)}.get(kind, str)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if kind == "str" and is_number and field.rpartition(".")[2] in _QUANTITIES | {"size_limit"}:
            return
        if not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"):
            self.wrong.append(f'json: cannot unmarshal {type(value).__name__} into field "{path}" of type {kind}')

    def _object(self, value: Any, kind: str, path: str) -> None:
        if not isinstance(value, dict):
            self.wrong.append(f'json: cannot unmarshal {type(value).__name__} into field "{path}" of type {kind}')
            return
        fields, required = _fields(kind)
        for name, each in value.items():
            inner = f"{path}.{name}" if path else name
            if name not in fields:
                self.wrong.append(f'unknown field "{inner}"')
            else:
                attribute, inner_kind = fields[name]
                self.value(each, inner_kind, inner, f"{kind}.{attribute}")
        for name in required:
            if value.get(name) is None:
                self.lacking.append((f"{path}.{name}" if path else name, "Required value"))


@cache
def _fields(kind: str) -> tuple[dict[str, tuple[str, str]], tuple[str, ...]]:
    """Return name → (attribute, type), and the names that an object must have."""
    if kind in CRDS:
        return CRDS[kind]
    model = getattr(models, kind)
    fields = {model.attribute_map[name]: (name, kind) for name, kind in model.openapi_types.items()}
    probe = model.__new__(model)
    probe.local_vars_configuration = SimpleNamespace(client_side_validation=True)
    required: list[str] = []
    for name in model.openapi_types:
        try:
            setattr(probe, name, None)
        except ValueError:
            required.append(model.attribute_map[name])
    return fields, tuple(required)


def check_schema(resource: Resource, data: Any, *, model: str = "") -> None:
    """Refuse what the published schema of *resource* (or of the class *model*) does not know; raises ApiError."""
    if not isinstance(data, dict):
        raise ApiError(400, "the object provided is unrecognized (must be of type object)")
    kind = model or resource.model or resource.kind
    check = _Check()
    check.value(data, kind, "", "")
    if check.wrong:
        said = ", ".join(check.wrong)
        raise ApiError(400, f"{data.get('kind')} in version {resource.version!r} cannot be handled: "
                            f"strict decoding error: {said}")  # fmt: skip
    if check.lacking:
        raise invalid(data.get("kind") or resource.kind, _name(data), check.lacking)


def _name(data: Object) -> str:
    metadata = data.get("metadata") or {}
    return metadata.get("name") or metadata.get("generateName") or ""
