"""What every session pays for the tools, and that their keys do not change by accident."""

import json

import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.mcp_server.definitions import ARGUMENTS, definitions
from anamnesis_pipeline.mcp_server.instructions import INSTRUCTIONS

KEYS = {
    "search": ["query", "project", "since", "until", "kind", "limit", "mode", "rank"],
    "read": ["ids", "page", "around"],
    "timeline": ["project", "session", "since", "until", "order", "limit", "cursor"],
    "remember": ["text", "type", "why", "tags", "project"],
    "forget": ["ids", "confirm"],
    "status": ["project", "ingest"],
}


def tokens(text: str) -> int:
    (spans,) = minilm_pieces().spans([text])
    return len(spans)


def test_all_definitions_together_cost_less_than_1500_tokens() -> None:
    shown = [{name: tool[name] for name in ("name", "description", "inputSchema")} for tool in definitions()]
    assert tokens(json.dumps(shown, separators=(",", ":"))) < 1_500


def test_there_are_at_most_six_tools_with_stable_arguments() -> None:
    assert {tool["name"]: list(tool["inputSchema"]["properties"]) for tool in definitions()} == KEYS


def test_no_text_is_cut_by_claude_code() -> None:
    assert all(len(tool["description"].encode()) < 2_048 for tool in definitions())
    assert all(line == line.strip() for tool in definitions() for line in tool["description"].splitlines())
    assert len(INSTRUCTIONS.encode()) < 2_048


@pytest.mark.parametrize("trigger", ["I don't know", "decide", "error", "last time", "start of work"])
def test_the_instructions_name_what_triggers_a_search(trigger: str) -> None:
    assert trigger in INSTRUCTIONS


def test_only_what_changes_nothing_says_so() -> None:
    read_only = {tool["name"] for tool in definitions() if tool["annotations"]["readOnlyHint"]}
    assert read_only == {"search", "read", "timeline"}
    assert [tool["name"] for tool in definitions() if tool["annotations"]["destructiveHint"]] == ["forget"]


def test_every_schema_is_one_that_its_tool_keeps() -> None:
    for tool in definitions():
        assert set(tool["inputSchema"].get("required", [])) == {
            name for name, field in ARGUMENTS[tool["name"]].model_fields.items() if field.is_required()
        }
