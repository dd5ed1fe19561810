"""Read parameters as pydantic and type checkers do: `Field(...)` as a default, and None as the default of any type."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterType:
    """The type of a parameter, with the constraints of its `Field`, and what holds where the argument is left out.

    `default` is what the schema shows, or `Parameter.empty`. `fill` makes the argument where the function's own default
    would be no value but a `Field`, or is in the annotation; None leaves that to the function.
    """

    annotation: Any
    required: bool
    default: object = inspect.Parameter.empty
    fill: Callable[[], Any] | None = None


def parameter_type(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> ParameterType:
    """Return the type of a parameter, whose annotation is in *hints*."""
    field_info = _field_info()
    annotation, default = hints.get(parameter.name, Any), parameter.default
    if isinstance(default, field_info):
        return _of_field(Annotated[annotation, default], default)
    if default is inspect.Parameter.empty:
        fields = [each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, field_info)]
        given = next((each for each in reversed(fields) if not each.is_required()), None)
        return ParameterType(annotation=annotation, required=True) if given is None else _of_field(annotation, given)
    if default is None and not _admits_none(annotation):
        annotation = annotation | None if isinstance(annotation, type) else typing.Optional[annotation]  # noqa: UP045
    return ParameterType(annotation=annotation, required=False, default=default)


def documentation(hint: object) -> str | None:
    """Return what an annotation says about its parameter: the last text, or `Doc` of PEP 727, in it."""
    found: str | None = None
    for extra in getattr(hint, "__metadata__", ()):
        text = extra if isinstance(extra, str) else getattr(extra, "documentation", None)
        found = text if isinstance(text, str) else found
    return found


def _field_info() -> type[FieldInfo] | tuple[()]:
    """Return the class of fields, or what nothing is an instance of while no module has imported it.

    Then no field can be there, and to import it took a third of the CPU time of a program that makes one call.
    """
    module = sys.modules.get("pydantic.fields")
    return () if module is None else module.FieldInfo


def _of_field(annotation: Any, field: FieldInfo) -> ParameterType:
    if field.is_required():
        return ParameterType(annotation=annotation, required=True)
    if field.default is None and not _admits_none(annotation):
        annotation = typing.Optional[annotation]  # noqa: UP045 - `|` does not take every annotation
    default = inspect.Parameter.empty if field.default_factory is not None else field.default
    return ParameterType(
        annotation=annotation,
        required=False,
        default=default,
        fill=lambda: field.get_default(call_default_factory=True),
    )


def _admits_none(annotation: object) -> bool:
    if typing.get_origin(annotation) is Annotated:
        return _admits_none(typing.get_args(annotation)[0])
    if annotation in (None, type(None), Any, object):
        return True
    return type(None) in typing.get_args(annotation)
