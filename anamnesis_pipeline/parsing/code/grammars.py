"""The node types of each language's grammar: definitions, imports, comments. A language is one entry here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grammar:
    """Names of node types, separated by spaces.

    `functions` and `classes` become sections at the top level, and lines of their class's outline inside one. `through`
    nodes are transparent; `scopes` as well, but their name precedes their content. `values` hold a name that may be
    assigned a function. `constants` are named in the head of the file; `members` in the outline of their class, besides
    functions.
    """

    functions: str
    classes: str = ""
    through: str = ""
    scopes: str = ""
    imports: str = ""
    constants: str = ""
    values: str = ""
    members: str = ""


_JAVASCRIPT = Grammar(
    functions="function_declaration generator_function_declaration method_definition",
    classes="class_declaration",
    through="export_statement",
    imports="import_statement",
    constants="lexical_declaration variable_declaration",
    values="lexical_declaration variable_declaration expression_statement field_definition",
)
_TYPESCRIPT = Grammar(
    functions=f"{_JAVASCRIPT.functions} function_signature method_signature abstract_method_signature",
    classes=f"{_JAVASCRIPT.classes} abstract_class_declaration interface_declaration enum_declaration "
    "type_alias_declaration",
    through="export_statement ambient_declaration statement_block expression_statement",
    scopes="internal_module module",
    imports="import_statement",
    constants=_JAVASCRIPT.constants,
    values=f"{_JAVASCRIPT.values} public_field_definition",
    members="property_signature",
)
_CPP = Grammar(
    functions="function_definition",
    classes="class_specifier struct_specifier union_specifier enum_specifier type_definition concept_definition",
    through="template_declaration preproc_ifdef preproc_if preproc_else preproc_elif linkage_specification "
    "declaration_list",
    scopes="namespace_definition",
    imports="preproc_include",
    constants="preproc_def preproc_function_def declaration",
    members="field_declaration",
)

GRAMMARS = {
    "bash": Grammar("function_definition", constants="variable_assignment declaration_command"),
    "c": _CPP,
    "cpp": _CPP,
    "csharp": Grammar(
        functions="method_declaration constructor_declaration",
        classes="class_declaration interface_declaration struct_declaration record_declaration enum_declaration "
        "delegate_declaration",
        through="declaration_list",
        scopes="namespace_declaration file_scoped_namespace_declaration",
        imports="using_directive",
        members="property_declaration",
    ),
    "go": Grammar(
        functions="function_declaration method_declaration",
        classes="type_declaration",
        imports="import_declaration",
        constants="const_declaration var_declaration",
    ),
    "java": Grammar(
        functions="method_declaration constructor_declaration compact_constructor_declaration",
        classes="class_declaration interface_declaration enum_declaration record_declaration "
        "annotation_type_declaration",
        through="enum_body_declarations",
        imports="import_declaration",
    ),
    "javascript": _JAVASCRIPT,
    "kotlin": Grammar(
        functions="function_declaration",
        classes="class_declaration object_declaration",
        through="companion_object class_body",
        imports="import_list import_header",
        constants="property_declaration",
    ),
    "lua": Grammar("function_declaration", constants="variable_declaration"),
    "php": Grammar(
        functions="function_definition method_declaration",
        classes="class_declaration interface_declaration trait_declaration enum_declaration",
        through="namespace_definition compound_statement if_statement",
        imports="namespace_use_declaration",
        constants="const_declaration",
    ),
    "python": Grammar(
        functions="function_definition",
        classes="class_definition",
        through="decorated_definition if_statement else_clause elif_clause try_statement except_clause with_statement "
        "block",
        imports="import_statement import_from_statement",
        constants="assignment expression_statement",
    ),
    "ruby": Grammar(
        functions="method singleton_method",
        classes="class",
        through="body_statement singleton_class",
        scopes="module",
        constants="assignment",
    ),
    "rust": Grammar(
        functions="function_item function_signature_item macro_definition",
        classes="struct_item enum_item union_item impl_item trait_item type_item",
        through="declaration_list",
        scopes="mod_item",
        imports="use_declaration",
        constants="const_item static_item",
    ),
    "scala": Grammar(
        functions="function_definition function_declaration",
        classes="class_definition object_definition trait_definition enum_definition",
        imports="import_declaration",
        constants="val_definition",
    ),
    "swift": Grammar(
        functions="function_declaration init_declaration protocol_function_declaration",
        classes="class_declaration protocol_declaration",
        imports="import_declaration",
        constants="property_declaration",
    ),
    "tsx": _TYPESCRIPT,
    "typescript": _TYPESCRIPT,
}
