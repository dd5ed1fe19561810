"""What all parts know about objects: errors as the API reports them, selectors, patches, times and quantities."""

from __future__ import annotations

import copy
import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    504: "Timeout",
}
_SUFFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SUFFIXES |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|)")
_TERM = re.compile(r"\s*(!?[\w./-]+)\s*(?:(==|=|!=)\s*([\w./-]*)|\s(in|notin)\s*\(([^)]*)\))?\s*(?:,|$)")


class ApiError(Exception):
    """A refusal of the API server, which its client gets as an object of the kind Status."""

    def __init__(self, code: int, message: str, *, reason: str = "", details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or _REASONS.get(code, "InternalError")
        self.details = details

    def status(self) -> Object:
        """Return the Status."""
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        return status | ({"details": self.details} if self.details else {})


def not_found(resource: str, name: str, group: str = "") -> ApiError:
    """Return the error for an object that does not exist."""
    full = f"{resource}.{group}" if group else resource
    return ApiError(404, f'{full} "{name}" not found', details=_details(resource, name, group))


def forbidden(resource: str, name: str, why: str, group: str = "") -> ApiError:
    """Return the error of an admission plugin or of quota."""
    full = f"{resource}.{group}" if group else resource
    return ApiError(403, f'{full} "{name}" is forbidden: {why}', details=_details(resource, name, group))


def conflict(resource: str, name: str, group: str = "") -> ApiError:
    """Return the error for a write over another one's."""
    full = f"{resource}.{group}" if group else resource
    text = "the object has been modified; please apply your changes to the latest version and try again"
    return ApiError(
        409, f'Operation cannot be fulfilled on {full} "{name}": {text}', details=_details(resource, name, group)
    )


def invalid(kind: str, name: str, causes: list[tuple[str, str]]) -> ApiError:
    """Return the error for an object with invalid values: each cause is (path, message)."""
    said = ", ".join(f"{path}: {message}" for path, message in causes)
    message = f'{kind} "{name}" is invalid: {said if len(causes) == 1 else f"[{said}]"}'
    listed = [{"reason": "FieldValueInvalid", "message": text, "field": path} for path, text in causes]
    return ApiError(422, message, details={"name": name, "kind": kind, "causes": listed})


def _details(resource: str, name: str, group: str) -> Object:
    return {"name": name, "kind": resource} | ({"group": group} if group else {})


def now() -> str:
    """Return the time as metav1.Time has it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def now_micro() -> str:
    """Return the time as metav1.MicroTime has it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def quantity(value: Any) -> float:
    """Return the number that a quantity such as `500m` or `64Mi` stands for; raises ValueError."""
    found = _QUANTITY.fullmatch(str(value))
    if found is None:
        raise ValueError(f"quantities must match the regular expression '{_QUANTITY.pattern}'")
    return float(found[1]) * _SUFFIXES[found[2]]


Term = tuple[str, str, tuple[str, ...]]
"""Key, operator (In, NotIn, Exists, DoesNotExist), values."""


def parse_selector(text: str) -> list[Term]:
    """Read a label selector as it is in a query; raises ApiError."""
    terms: list[Term] = []
    position = 0
    while position < len(text):
        found = _TERM.match(text, position)
        if found is None:
            raise ApiError(400, f"unable to parse requirement: {text[position:]!r}")
        key, equals, value, word, values = found.groups()
        if equals:
            terms.append((key, "NotIn" if equals == "!=" else "In", (value,)))
        elif word:
            several = tuple(each.strip() for each in values.split(","))
            terms.append((key, "In" if word == "in" else "NotIn", several))
        else:
            terms.append((key.lstrip("!"), "DoesNotExist" if key.startswith("!") else "Exists", ()))
        position = found.end()
    return terms


def labels_match(terms: list[Term], labels: Mapping[str, str] | None) -> bool:
    """Return whether *labels* fulfil all *terms*."""
    has = labels or {}
    for key, operator, values in terms:
        value = has.get(key)
        match operator:
            case "In":
                fits = value in values
            case "NotIn":
                fits = value not in values
            case "Exists":
                fits = key in has
            case _:
                fits = key not in has
        if not fits:
            return False
    return True


def selector_matches(selector: Object | None, labels: Mapping[str, str] | None) -> bool:
    """Return whether *labels* fulfil a LabelSelector; an empty one selects everything, None nothing."""
    if selector is None:
        return False
    terms: list[Term] = [(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    terms += [
        (each["key"], each["operator"], tuple(each.get("values") or ()))
        for each in selector.get("matchExpressions") or []
    ]
    return labels_match(terms, labels)


def field_matches(text: str, item: Object) -> bool:
    """Return whether *item* fulfils a field selector as it is in a query."""
    for term in filter(None, text.split(",")):
        path, operator, value = re.split(r"(!=|==|=)", term, maxsplit=1)
        found: Any = item
        for name in path.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if (str(found or "") == value) == (operator == "!="):
            return False
    return True


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386) and return the result."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "ownerReferences": "uid",
    "imagePullSecrets": "name",
    "taints": "key",
    "addresses": "type",
    "podIPs": "ip",
    "hostIPs": "ip",
}


def strategic(target: Any, patch: Any, name: str = "") -> Any:
    """Apply a strategic merge patch: lists with a merge key are merged by it, all others are replaced."""
    if isinstance(patch, list):
        key = _MERGE_KEYS.get(name)
        if key is None or not isinstance(target, list):
            return [copy.deepcopy(each) for each in patch if not (isinstance(each, dict) and "$patch" in each)]
        result = {each[key]: each for each in target}
        for each in patch:
            if each.get("$patch") == "delete":
                result.pop(each[key], None)
            else:
                result[each[key]] = strategic(result.get(each[key]), each)
        return [*result.values()]
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif not key.startswith("$"):
            result[key] = strategic(result.get(key), value, key)
    return result
