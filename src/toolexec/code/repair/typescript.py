"""TypeScript as JavaScript: types become spaces, by the syntax tree that tree-sitter gives, so that places stay."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, TypeAlias

from toolexec.errors import MissingExtraError
from toolexec.errors.extras import extra_needed

_STATEMENTS: Final = frozenset(
    {"interface_declaration", "type_alias_declaration", "ambient_declaration", "function_signature"}
)
_TYPES: Final = frozenset(
    {
        "type_annotation",
        "type_parameters",
        "type_arguments",
        "implements_clause",
        "accessibility_modifier",
        "override_modifier",
        "asserts_annotation",
        "type_predicate_annotation",
        "abstract_method_signature",
        "method_signature",
        "index_signature",
    }
)
_PLAIN: Final = frozenset({"type_arguments"})  # `f<a>(b)` compares in JavaScript
_HINT: Final = re.compile(
    r"\b(?:interface|type|enum|namespace|declare|abstract|as|satisfies|implements|readonly|private|public|protected)\b"
    r"|[\w)\]}]\s*\??:\s*[\w{(\[\"']|\w<|\w!"
)
_MEMBER: Final = re.compile(r"(\w+)\s*(?:=\s*(.+))?", re.DOTALL)
_Span: TypeAlias = tuple[int, int, bool, str]
_ONLY_CODE: Final = {"enum_declaration": "enum", "internal_module": "namespace", "module": "module"}


def without_types(code: str, *, is_typed: bool) -> str:
    """Return *code* without its types. Plain JavaScript stays as it is, and so does what cannot be read.

    With *is_typed* the code is known to be TypeScript; raises MissingExtraError where its parser is not installed.
    """
    if not is_typed and not _HINT.search(code):
        return code
    parser = _parser()
    if parser is None:
        if is_typed:
            _load()
        return code
    source = code.encode()
    tree = parser.parse(source)
    spans: list[_Span] = []
    kinds: set[str] = set()
    _collect(tree.root_node, spans, kinds)
    if not spans or (not is_typed and (kinds <= _PLAIN or tree.root_node.has_error)):
        return code
    pieces: list[str] = []
    at = 0
    for start, end, ends, text in sorted(spans):
        if start < at:
            continue
        pieces.append(source[at:start].decode())
        blank = re.sub(r"[^\r\n]", " ", source[start:end].decode())
        if text:
            pieces.append(text + "\n" * blank.count("\n"))
        else:
            pieces.append(f";{blank[1:]}" if ends else blank)
        at = end
    return "".join([*pieces, source[at:].decode()])


def enum_as_object(source: str, *, only_certain: bool = False) -> str:
    """Return an enum as a frozen object, with the names of its numbers; "" with *only_certain* where a member is
    computed."""
    name = re.search(r"enum\s+(\w+)", source)
    body = re.sub(r"//[^\n]*|/\*.*?\*/", "", source.partition("{")[2].rpartition("}")[0], flags=re.DOTALL)
    following, pairs, names = "0", list[str](), list[str]()
    for part in body.split(","):
        found = _MEMBER.match(part.strip())
        if found is None:
            continue
        value = found[2].strip() if found[2] else following
        is_number = re.fullmatch(r"\d+", value) is not None
        if only_certain and not is_number and not re.fullmatch(r"'[^'\\]*'|\"[^\"\\]*\"", value):
            return ""
        following = str(int(value) + 1) if is_number else following
        pairs.append(f"{found[1]}: {value}")
        names += [f'{value}: "{found[1]}"'] if is_number else []
    return f"const {name[1] if name is not None else 'Names'} = Object.freeze({{ {', '.join([*pairs, *names])} }})"


def not_erasable(code: str) -> tuple[str, str]:
    """Return the kind of the first construct of TypeScript that has no equal in JavaScript, and its source."""
    parser = _parser() if re.search(r"\b(?:enum|namespace|module)\s+\w", code) else None
    if parser is None:
        return "", ""
    source = code.encode()
    pending = [parser.parse(source).root_node]
    while pending:
        node = pending.pop(0)
        if node.type in _ONLY_CODE and node.is_named:
            return _ONLY_CODE[node.type], source[node.start_byte : node.end_byte].decode()
        pending.extend(node.children)
    return "", ""


def _collect(root: Any, spans: list[_Span], kinds: set[str]) -> None:
    """Add the places of types below *root*, each with whether a statement goes with it, and what it becomes."""
    pending = [root]
    while pending:
        node = pending.pop()
        kind = node.type
        whole: _Span | None = None
        if (
            kind in _STATEMENTS
            or (kind == "import_statement" and _has(node, "type"))
            or (kind == "export_statement" and any(child.type in _STATEMENTS for child in node.children))
        ):
            whole = node.start_byte, node.end_byte, True, ""
        elif kind in _TYPES:
            whole = node.start_byte, node.end_byte, False, ""
        elif kind == "required_parameter" and node.children and node.children[0].type == "this":
            whole = node.start_byte, _after_comma(node), False, ""
        elif kind == "enum_declaration" and (text := enum_as_object(node.text.decode(), only_certain=True)):
            whole = node.start_byte, node.end_byte, False, text
        if whole is not None:
            spans.append(whole)
            kinds.add(kind)
            continue
        if kind == "method_definition" and (fields := _parameter_fields(node)):
            spans.append((*fields[:2], False, fields[2]))
            kinds.add("parameter_property")
        children = node.children
        if kind in ("as_expression", "satisfies_expression", "non_null_expression"):
            spans.append((children[0].end_byte, node.end_byte, False, ""))
            kinds.add(kind)
            pending.append(children[0])
            continue
        for child in children:
            mark = child.type
            if (
                (mark == "?" and kind in ("optional_parameter", "public_field_definition", "method_definition"))
                or (mark in ("readonly", "declare", "abstract") and not child.is_named and kind != "identifier")
                or (mark == "!" and kind in ("public_field_definition", "variable_declarator"))
            ):
                spans.append((child.start_byte, child.end_byte, False, ""))
                kinds.add(mark)
            else:
                pending.append(child)


def _parameter_fields(node: Any) -> tuple[int, int, str] | None:
    """Return where a constructor sets the fields that its parameters declare, and what it says there."""
    given, body = node.child_by_field_name("parameters"), node.child_by_field_name("body")
    declaring = [
        each for each in given.named_children if _has(each, "accessibility_modifier") or _has(each, "readonly")
    ]
    names = [each.child_by_field_name("pattern").text.decode() for each in declaring]
    if not names or body is None:
        return None
    calls = [each for each in body.named_children if each.text.startswith(b"super(")]
    at = calls[0].end_byte if calls else body.start_byte + 1
    return at, at, "".join(f" this.{name} = {name};" for name in names)


def _has(node: Any, kind: str) -> bool:
    return any(child.type == kind for child in node.children)


def _after_comma(node: Any) -> int:
    after = node.next_sibling
    return after.end_byte if after is not None and after.type == "," else node.end_byte


@cache
def _parser() -> Any:
    try:
        return _load()
    except (ImportError, MissingExtraError):
        return None


def _load() -> Any:
    with extra_needed("javascript", "TypeScript"):
        from tree_sitter import Language, Parser
        from tree_sitter_typescript import language_typescript
    return Parser(Language(language_typescript()))
