"""Nothing that may stand in a log stops the parser."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.exchanges.parsing import FileOrigin, FileState, advance, read_messages
from anamnesis_pipeline.sources.lines import complete_lines
from anamnesis_tests.exchanges.log_lines import Log


@given(st.binary(max_size=3_000), st.lists(st.binary(max_size=200), max_size=6))
@settings(max_examples=150, deadline=None)
def test_arbitrary_bytes_never_stop_the_parser(noise: bytes, lines: list[bytes]) -> None:
    log = Log().talk("kept")
    data = noise + b"\n" + b"\n".join(lines) + b"\n" + log.lines[0].encode() + b"\n"
    texts = [text for text, _ in complete_lines(lambda at, n: data[at : at + n], 0, len(data))]
    batch = read_messages(texts, 0)
    step = advance(FileState(), None, batch, (), FileOrigin("s", "a.jsonl"), label=str, idle_minutes=30)
    assert any(segment.text == "kept" for part in step.parts for segment in part.segments)
    assert FileState.from_json(step.state.to_json()) == step.state


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("type", "uuid", "parentUuid", "sessionId", "timestamp", "cwd", "agentId", "isSidechain", "isMeta", "message",
          "toolUseResult", "attachment", "subtype", "content", "logicalParentUuid", "origin")  # fmt: skip
TYPES = st.sampled_from(["user", "assistant", "attachment", "system", "progress", "zz"])
BLOCK_TYPES = st.sampled_from(["text", "thinking", "tool_use", "tool_result", "image", "document", "zz"])
BLOCKS = st.fixed_dictionaries(
    {"type": BLOCK_TYPES},
    optional=dict.fromkeys(("text", "thinking", "id", "name", "input", "tool_use_id", "content", "source"), JSON),
)
RECORDS = st.fixed_dictionaries(
    {"type": TYPES | JSON},
    optional={name: JSON for name in FIELDS if name not in {"type", "message"}}
    | {
        "message": JSON | st.fixed_dictionaries({"content": JSON | st.lists(BLOCKS, max_size=3)}, optional={"id": JSON})
    },
)


@given(st.lists(RECORDS, max_size=4))
@settings(max_examples=200, deadline=None)
def test_records_whose_fields_hold_anything_never_stop_the_parser(records: list[dict[str, object]]) -> None:
    batch = read_messages([json.dumps(record) for record in records], 0)
    step = advance(FileState(), None, batch, (), FileOrigin("s", "a.jsonl"), label=str, idle_minutes=30)
    assert batch.malformed == 0
    assert FileState.from_json(step.state.to_json()) == step.state
