"""Blocks of files that are derived from the dataclasses that they describe: those declare the settings, once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Final, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from toolexec.config.kinds import File, ListOf, Seconds, Size
from toolexec.model.declared import Setting, annotation_of, declared, form_of

B = TypeVar("B", bound="Block")
T = TypeVar("T")

_NO_VALUE: Final = ("", 0, (), "auto")
"""What files write where the library has None, which TOML does not have."""
_FORMS: Final[Mapping[str, Any]] = {"seconds": Seconds, "size": Size, "file": File}


@dataclass(frozen=True, slots=True)
class From:
    """The settings of a dataclass that a block has: all that it declares but those of `leave`, or `only` some.
    `renamed` is what files call those that have another name there."""

    source: type
    only: Collection[str] = ()
    leave: Collection[str] = ()
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])

    def names(self) -> dict[str, str]:
        """Return what files call each of those settings, by name, in the order of the dataclass."""
        return {
            name: self.renamed.get(name, name)
            for name in declared(self.source)
            if name not in self.leave and (name in self.only or not self.only)
        }


class Block(BaseModel):
    """A table of settings: nothing is converted that is not of its kind, and nothing unknown is allowed.

    `derived_from` are the dataclasses that declare its settings, `key_order` has the names of all, as they are shown.
    Type checkers know as its attributes what is written in it; of what is derived, `read` gives the dataclass.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        defer_build=True,
    )
    derived_from: ClassVar[tuple[From, ...]] = ()
    key_order: ClassVar[Sequence[str]] = ()

    @classmethod
    def names(cls) -> Sequence[str]:
        """Return the names of all settings and nested blocks, in the order in which they are shown."""
        return cls.key_order or [*cls.model_fields]


def entry(default: object, help: str, *, secret: bool = False, ge: float | None = None, le: float | None = None) -> Any:
    """Return the field of a setting that only files have, or that no dataclass declares."""
    return Field(default, description=help, json_schema_extra={"secret": True} if secret else None, ge=ge, le=le)


def of(
    *sources: From | type,
    kinds: Mapping[str, Any] | None = None,
    defaults: Mapping[str, object] | None = None,
    after: Mapping[str, str] | None = None,
) -> Callable[[type[B]], type[B]]:
    """Have a block get the settings that dataclasses declare, before its own ones.

    *kinds* are the types of values that files write in another way than the dataclass has them, *defaults* those that
    files have in place of the dataclass's. *after* puts a name behind another one, or first for "".
    """
    taken = tuple(each if isinstance(each, From) else From(each) for each in sources)

    def derive(own: type[B]) -> type[B]:
        derived: dict[str, FieldInfo] = {}
        for each in taken:
            says, parts = declared(each.source), {part.name: part for part in fields(each.source)}
            for name, called in each.names().items():
                kind = kinds[called] if kinds and called in kinds else _type(annotation_of(each.source, name))
                default = (defaults or {}).get(name, parts[name].default)
                if default is MISSING:
                    raise TypeError(f"{each.source.__name__}.{name} has no default that files could have")
                derived[called] = FieldInfo.from_annotated_attribute(kind, _entry_of(says[name], default))
        own.derived_from = taken
        own.key_order = _ordered([*derived, *own.model_fields], after or {})
        # Nothing is built of them before the first use: see `defer_build`. `create_model` would make each class twice,
        # which is a fifth of what the import of all blocks takes.
        own.__pydantic_fields__.update(derived)
        return own

    return derive


def _ordered(names: list[str], after: Mapping[str, str]) -> list[str]:
    for name, before in after.items():
        names.remove(name)
        names.insert(names.index(before) + 1 if before else 0, name)
    return names


def _entry_of(says: Setting, default: object) -> Any:
    """Return the field of a block for a setting of a dataclass."""
    least = says.least if says.file_least is None else says.file_least
    most = says.most if says.file_most is None else says.file_most
    return entry(default, says.help, secret=says.secret, ge=least, le=most)


def _type(annotation: Any) -> Any:
    """Return the type of a block's field for the annotation of a dataclass's."""
    form = form_of(annotation)
    if form is not None:
        return _FORMS[form.name]
    if get_origin(annotation) in (tuple, Sequence):
        return ListOf[get_args(annotation)[0]]
    return annotation


def keys_for(source: type, block: type[Block]) -> dict[str, str]:
    """Return what *block* calls each of its settings that *source* declares, by the name there."""
    found = [each.names() for each in block.derived_from if each.source is source]
    return {name: called for names in found for name, called in names.items()}


def values_for(source: type, *blocks: Block) -> dict[str, Any]:
    """Return the values that *blocks* have of the settings that *source* declares, by name: to build it with."""
    values = {
        name: getattr(block, called) for block in blocks for name, called in keys_for(source, type(block)).items()
    }
    return {name: None if _is_none(source, name, value) else value for name, value in values.items()}


def _is_none(source: type, name: str, value: object) -> bool:
    return value in _NO_VALUE and str(source.__annotations__[name]).endswith("| None")


def read(source: type[T], *blocks: Block, **more: Any) -> T:
    """Return the dataclass *source* with the values that *blocks* have of its settings, and *more*; raises what it
    raises for values that make no sense together."""
    return source(**values_for(source, *blocks), **more)
