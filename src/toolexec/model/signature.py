"""From a typed function to JSON Schemas, and from JSON to what the function's parameters ask for."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from toolexec.errors import InputValidationError, InvalidToolError, Violation
from toolexec.model.handler import HandlerKind, ToolContext
from toolexec.model.json_value import JSONDict, JSONObject, pointer, to_json
from toolexec.model.parameters import documentation, parameter_type
from toolexec.model.plain_types import plain_schema
from toolexec.model.tree_size import excess_of

if typing.TYPE_CHECKING:
    import pydantic

_PLAIN: frozenset[Any] = frozenset({str, float, bool, type(None), None, Any, object, dict, list})
_SCALARS: frozenset[Any] = frozenset({str, int, float, bool, type(None)})
_STREAMS: frozenset[Any] = frozenset({Iterator, Iterable, Generator, AsyncIterator, AsyncGenerator})


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A function's parameters and result as JSON Schemas, with the converters that its types need."""

    input_schema: JSONDict
    output_schema: JSONDict | None
    convert: Callable[[JSONObject], JSONObject] | None
    finish: Callable[[Any], Any] | None
    context_parameter: str | None


def read_signature(
    function: Callable[..., Any],
    kind: HandlerKind,
    *,
    descriptions: Mapping[str, str],
    local_names: Mapping[str, object],
) -> Signature:
    """Read *function*; *descriptions* are for parameters without one of their own.

    Raises InvalidToolError for `*args`, positional-only parameters, unresolvable annotations and types that have no
    JSON Schema.
    """
    name = getattr(function, "__name__", type(function).__name__)
    hints = _hints(function, name, local_names)
    parameters, context, extra = _parameters(function, name, hints)
    read = {p.name: parameter_type(p, hints) for p in parameters}
    hints |= {p.name: read[p.name].annotation for p in parameters if p.name in hints or read[p.name].fill}
    annotations = {p.name: read[p.name].annotation for p in parameters}
    if extra is not None:
        annotations["**"] = hints.get(extra, Any)
    schemas, defs = _schemas(annotations, name, "validation")
    input_schema: JSONDict = {"type": "object", "properties": {}}
    for parameter in parameters:
        schema = _described(schemas[parameter.name], descriptions.get(parameter.name), hints.get(parameter.name))
        default = read[parameter.name].default
        if default is not inspect.Parameter.empty:
            schema = _with_default(schema, default, annotations[parameter.name])
        input_schema["properties"][parameter.name] = schema
    required = [p.name for p in parameters if read[p.name].required]
    if required:
        input_schema["required"] = required
    input_schema["additionalProperties"] = schemas["**"] if extra is not None else False
    if defs:
        input_schema["$defs"] = defs
    typed = {
        parameter: _adapter(annotation, name, parameter)
        for parameter, annotation in annotations.items()
        if parameter != "**" and not _is_plain(hints.get(parameter, Any), given=True)
    }
    whole = tuple(n for n in annotations if _is_int(hints.get(n, Any)))
    fills = {n: each.fill for n, each in read.items() if each.fill is not None}
    output_schema, finish = _output(hints.get("return", inspect.Parameter.empty), kind, name)
    return Signature(
        input_schema=input_schema,
        output_schema=output_schema,
        convert=_converter(typed, whole, fills) if typed or whole or fills else None,
        finish=finish,
        context_parameter=context,
    )


def _hints(function: Callable[..., Any], name: str, local_names: Mapping[str, object]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else getattr(function, "func", function.__call__)
    try:
        return typing.get_type_hints(target, localns=dict(local_names) or None, include_extras=True)
    except Exception as error:
        raise InvalidToolError(f"cannot resolve the annotations of {name}: {error}") from error


def _parameters(
    function: Callable[..., Any], name: str, hints: Mapping[str, object]
) -> tuple[list[inspect.Parameter], str | None, str | None]:
    found: list[inspect.Parameter] = []
    context: str | None = None
    extra: str | None = None
    try:
        signature = inspect.signature(function)
    except ValueError as error:  # of builtins such as int and max
        raise InvalidToolError(f"{name} does not say what it takes: {error}; call it in a function of yours") from error
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise InvalidToolError(
                f"{name} has the parameter {parameter}, but tool arguments go by name; make it an ordinary parameter"
            )
        if hints.get(parameter.name) is ToolContext:
            context = parameter.name
        elif parameter.kind is parameter.VAR_KEYWORD:
            extra = parameter.name
        else:
            found.append(parameter)
    return found, context, extra


def _adapter(annotation: Any, name: str, parameter: str) -> pydantic.TypeAdapter[Any]:
    import pydantic

    try:
        return pydantic.TypeAdapter(annotation)
    except Exception as error:
        raise InvalidToolError(f"{name}: the type of {parameter} has no JSON form: {error}") from error


def _schemas(
    annotations: Mapping[str, Any], name: str, mode: Literal["validation", "serialization"]
) -> tuple[dict[str, JSONDict], JSONDict]:
    plain = {key: schema for key, each in annotations.items() if (schema := plain_schema(each)) is not None}
    if len(plain) == len(annotations):
        return plain, {}
    import pydantic

    inputs: list[tuple[str, Literal["validation", "serialization"], pydantic.TypeAdapter[Any]]]
    inputs = [(key, mode, _adapter(each, name, key)) for key, each in annotations.items() if key not in plain]
    try:
        by_key, rest = pydantic.TypeAdapter.json_schemas(inputs)
    except Exception as error:
        raise InvalidToolError(f"{name}: a type has no JSON Schema: {str(error).splitlines()[0]}") from error
    return plain | {key: dict(schema) for (key, _), schema in by_key.items()}, rest.get("$defs", {})


def _described(schema: JSONDict, description: str | None, hint: object) -> JSONDict:
    if "description" in schema:
        return schema
    description = documentation(hint) or description
    return schema | {"description": description} if description else schema


def _with_default(schema: JSONDict, default: object, annotation: Any) -> JSONDict:
    if "default" in schema:
        return schema
    try:
        if _is_its_own(default, annotation):
            return schema | {"default": to_json(default)}
        adapter = _adapter(annotation, "", "")
        value = to_json(adapter.dump_python(default, mode="json", warnings=False, by_alias=True, fallback=to_json))
    except Exception:  # a default that has no JSON form stays the function's own business
        return schema
    return schema | {"default": value}


def _is_its_own(default: object, annotation: Any) -> bool:
    """Return whether a default is written as it is: a scalar of just the type that its parameter has."""
    fits = default is None or type(default) in (annotation, *typing.get_args(annotation))
    return fits and type(default) in _SCALARS and plain_schema(annotation) is not None


def _is_plain(annotation: object, *, given: bool = False) -> bool:
    """Return whether values of this annotation are JSON already, and JSON is already what it asks for.

    Of values that are *given* from outside, an int inside of something else is not: `2.0` is an integer to JSON Schema,
    but a float to Python. By itself it is common and cheap to put right, so `_is_int` looks for that.
    """
    origin = typing.get_origin(annotation)
    if origin is None:
        try:
            return annotation in _PLAIN or annotation is int
        except TypeError:
            return False
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        return _is_plain(arguments[0], given=given) and all(isinstance(extra, str) for extra in arguments[1:])
    if origin is Literal:
        return all(isinstance(value, str | int | bool | type(None)) for value in arguments)
    if _is_int(annotation):
        return True
    if origin in (dict, list, typing.Union, types.UnionType):
        return all(not (given and a is int) and _is_plain(a, given=given) for a in arguments)
    return False


def _is_int(annotation: object) -> bool:
    """Return whether this is `int` or `int | None`."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _is_int(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return set(typing.get_args(annotation)) == {int, type(None)}
    return annotation is int


def _converter(
    adapters: Mapping[str, pydantic.TypeAdapter[Any]], whole: Sequence[str], fills: Mapping[str, Callable[[], Any]]
) -> Callable[[JSONObject], JSONObject]:
    validated = _validation(adapters) if adapters else None

    def convert(args: Mapping[str, object]) -> JSONObject:
        converted = args
        for name in whole:
            value = args.get(name)
            if type(value) is float and value.is_integer():  # others get here only unchecked, and are left as they are
                converted = {**converted, name: int(value)}
        return converted if validated is None else validated(converted)

    if not fills:
        return convert

    def convert_and_fill(args: Mapping[str, object]) -> JSONObject:
        converted = convert(args)
        return {**{name: fill() for name, fill in fills.items() if name not in converted}, **converted}

    return convert_and_fill


def _validation(adapters: Mapping[str, pydantic.TypeAdapter[Any]]) -> Callable[[JSONObject], JSONObject]:
    """Return what makes values of their types of the arguments with these names; it raises InputValidationError."""
    import pydantic

    validators = {name: adapter.validate_python for name, adapter in adapters.items()}

    def validated(args: JSONObject) -> JSONObject:
        converted = dict(args)
        found: list[Violation] = []
        for name, validate in validators.items():
            if name in converted:
                try:
                    converted[name] = validate(converted[name])
                except pydantic.ValidationError as error:
                    found.extend(_violation(name, problem) for problem in error.errors(include_url=False))
        if found:
            raise InputValidationError(found, op="validate_input")
        return converted

    return validated


def _violation(name: str, problem: Any) -> Violation:
    path = "".join(f"/{pointer(step)}" for step in (name, *problem["loc"]))
    return Violation(path=path, keyword=str(problem["type"]), message=str(problem["msg"]))


def _output(annotation: object, kind: HandlerKind, name: str) -> tuple[JSONDict | None, Callable[[Any], Any] | None]:
    """Return the schema of the result, and what its type says about how it is written: of a model the fields that this
    type has, and serializers that only an annotation names. All else is what `to_json` makes of the value itself."""
    if kind in ("generator", "async_generator"):
        items = typing.get_args(annotation)[:1] if typing.get_origin(annotation) in _STREAMS else ()
        annotation = list[items[0]] if items else inspect.Parameter.empty  # pyright: ignore[reportInvalidTypeArguments]
    if annotation in (inspect.Parameter.empty, Any, typing.NoReturn, typing.Never) or _is_reply(annotation):
        return None, None
    schemas, defs = _schemas({"the result": annotation}, name, "serialization")
    schema = schemas["the result"] | ({"$defs": defs} if defs else {})
    if _is_plain(annotation):
        return schema, None
    adapter = _adapter(annotation, name, "the result")

    def finish(value: object) -> Any:
        if excess_of(value) is not None:  # the runner says so
            return value
        try:
            # `adapter.dump_python` does the same, in twice the time.
            return adapter.serializer.to_python(value, mode="json", warnings=False, by_alias=True, fallback=to_json)
        except Exception:  # it is not of this type, or has no JSON form: the runner says where
            return value

    return schema, finish


def _is_reply(annotation: object) -> bool:
    return getattr(annotation, "__name__", "") in ("ToolReply", "CallToolResult")
