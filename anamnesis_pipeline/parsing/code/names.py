"""The name of a syntax tree's node, and the names inside it."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_NAME_CHARS = 100
_MAX_DEPTH = 24

_FUNCTIONS = frozenset(
    "arrow_function function_expression generator_function function class function_definition".split()
)
_NAMES = frozenset(
    "identifier simple_identifier type_identifier field_identifier constant property_identifier qualified_identifier "
    "destructor_name operator_name variable_name name".split()
)
_BODIES = frozenset(
    "block class_body enum_class_body function_body declaration_list body_statement template_body "
    "field_declaration_list enumerator_list protocol_body statement_block compound_statement".split()
)
_SPECS = frozenset("type_spec type_alias const_spec var_spec".split())


def words(node: "Node") -> str:
    """Return the text of a node on one line, at most 4,000 bytes of it."""
    return " ".join(verbatim(node).split())


def verbatim(node: "Node") -> str:
    """Return the text of a node, at most 4,000 bytes of it."""
    return (node.text or b"")[:4000].decode("utf-8", "replace")


def body_of(node: "Node") -> "Node | None":
    """Return the body of a definition, behind its signature."""
    body = node.child_by_field_name("body")
    return body or next((child for child in node.named_children if child.type in _BODIES), None)


def name_of(node: "Node") -> str:
    """Return the name that a definition gives; of an implementation, the implemented type; empty if it has none."""
    if node.type == "impl_item":
        body = body_of(node)
        end = body.start_byte - node.start_byte if body else None
        return " ".join((node.text or b"")[:end].decode("utf-8", "replace").split()).removeprefix("impl ")
    if node.type == "init_declaration":
        return "init"
    found = node.child_by_field_name("name") or _declared(node)
    name = words(found)[:MAX_NAME_CHARS] if found is not None else ""
    receiver = node.child_by_field_name("receiver")
    owner = re.search(r"(\w+)\s*(?:\[[^\]]*\])?\s*\)\s*$", words(receiver)) if receiver is not None else None
    return f"{owner.group(1)}.{name}" if owner else name


def _declared(node: "Node") -> "Node | None":
    """Find the declared name: in C inside declarators, in Go in a type's spec, in Kotlin a plain child."""
    for _ in range(_MAX_DEPTH):
        inner = node.child_by_field_name("declarator")
        if inner is None:
            break
        node = inner
    if node.type in _NAMES:
        return node
    for child in node.named_children:
        if child.type in _SPECS:
            return child.child_by_field_name("name")
        if child.type in _NAMES:
            return child
    return None


def function_value(node: "Node") -> "tuple[str, Node] | None":
    """Return name and function of `const f = () => ...`, `module.exports.f = function ...` and class fields."""
    for child in (node, *node.named_children):
        name = _field(child, "name", "left", "property")
        value = _field(child, "value", "right")
        if name is None or value is None:
            continue
        if value.type == "call_expression":  # memo(() => ...), forwardRef(...)
            arguments = value.child_by_field_name("arguments")
            inside = arguments.named_children if arguments is not None else []
            value = next((argument for argument in inside if argument.type in _FUNCTIONS), value)
        if value.type in _FUNCTIONS:
            return words(name)[:MAX_NAME_CHARS], value
    return None


def constant_names(node: "Node") -> list[str]:
    """Return the public names that a statement assigns values to."""
    found = []
    for child in (node, *node.named_children):
        target = _field(child, "left", "name")
        if target is None and child.type in {"declaration", "property_declaration"}:
            target = _declared(child)
        if target is not None and target.type in _NAMES:
            found.append(words(target)[:MAX_NAME_CHARS])
    return [name for name in found if not name.startswith("_")]


_QUOTED = re.compile(r"[\"'<]([^\"'<>]+)[\"'>]")
_MODULE = re.compile(
    r"^(?:from|import|use|using|pub use)\s+(?:static\s+|type\s+|class\s+|struct\s+|func\s+)?([\w.:\\]+)"
)
_SEPARATOR = re.compile(r"[.\\]|::")


def imported(node: "Node") -> list[str]:
    """Return the packages that a statement imports, without the imported names."""
    text = words(node)
    quoted = _QUOTED.findall(text)
    if quoted:
        return [name[:MAX_NAME_CHARS] for name in quoted[:50]]
    module = _MODULE.match(text)
    parts = [part for part in _SEPARATOR.split(module.group(1)) if part] if module else []
    return [".".join(parts[:2]) if node.type == "import_declaration" else parts[0]] if parts else []


def parameters_of(node: "Node") -> list[str] | None:
    """Return the names of a function's parameters; None if it has no parameter list."""
    holder = node
    for _ in range(_MAX_DEPTH):
        inner = holder.child_by_field_name("declarator")
        if inner is None:
            break
        holder = inner
        if holder.child_by_field_name("parameters") is not None:
            break
    listed = holder.child_by_field_name("parameters")
    if listed is None:
        return None
    names = [_parameter(child) for child in listed.named_children if "comment" not in child.type]
    return [name for name in names if name and name not in {"self", "cls", "&self", "&mut self"}]


def _parameter(node: "Node") -> str:
    if node.type in {"keyword_separator", "positional_separator"}:
        return ""
    named = _field(node, "name", "pattern", "declarator")
    if named is None and node.type in {"typed_parameter", "parameter"}:
        named = next(iter(node.named_children), None)
    return words(named if named is not None else node)[:40].lstrip("*&")


def _field(node: "Node", *fields: str) -> "Node | None":
    return next((found for name in fields if (found := node.child_by_field_name(name)) is not None), None)
