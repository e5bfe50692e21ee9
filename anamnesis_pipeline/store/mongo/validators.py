"""What a document of each collection must have, as the server checks it with every write. Pure.

Fields beyond these are let through: what a newer version writes beside them is none of the server's business.
https://www.mongodb.com/docs/manual/core/schema-validation/
"""

from collections.abc import Mapping
from typing import Any

_WHOLE = ["int", "long"]
"""The driver writes a number as the shorter one that holds it."""
_KINDS: dict[str, dict[str, Any]] = {
    "text": {"bsonType": "string"},
    "text_or_none": {"bsonType": ["string", "null"]},
    "texts": {"bsonType": "array", "items": {"bsonType": "string"}},
    "number": {"bsonType": _WHOLE},
    "number_or_none": {"bsonType": [*_WHOLE, "null"]},
    "flag": {"bsonType": _WHOLE, "minimum": 0, "maximum": 1},
    "real": {"bsonType": [*_WHOLE, "double"]},
    "real_or_none": {"bsonType": [*_WHOLE, "double", "null"]},
    "date": {"bsonType": "date"},
    "data": {"bsonType": "binData"},
    "data_or_none": {"bsonType": ["binData", "null"]},
}

Shape = Mapping[str, str]
"""Kind of value -> the names of the fields that are of it; `?` behind one: it may be missing."""

_FACETS: Shape = {
    "text": "source instance project kind status session_id layer", "texts": "tags", "number": "at",
    "flag": "read_often",
}  # fmt: skip
_OF_EPISODE: Shape = {**_FACETS, "text": f"episode_id {_FACETS['text']}"}
_SHAPES: dict[str, Shape] = {
    # ingest
    "sources": {"text": "key machine root folder kind spec"},
    "files": {
        "text": "source path device inode head_hash parser_state unread",
        "number": "size mtime_ns head_bytes offset generation lines parsed_lines version first_mtime_ns",
        "flag": "gone incomplete to_parse",
    },
    "frames": {
        "text": "source path mark", "number": "generation first_line lines archive_offset archive_bytes revision",
        "text_or_none": "base_source base_path",
        "number_or_none": "base_generation base_revision base_offset base_bytes",
    },
    "messages": {"text": "key source path canonical"},
    "dead_letters": {"text": "source path reason", "number": "generation line"},
    "occurrences": {"text": "source path message_key", "number": "line"},
    "parts": {
        "text": "part_id source path session_id exchange_id kind project cwd prompt agent_id agent_type origin lead "
        "section started_at ended_at content_hash wanted_hash",
        "number": "ordinal", "flag": "closed to_publish to_summarize",
        "text_or_none": "published_hash summarized_hash summary_due held_by", "data": "segments",
    },
    # documents
    "sightings": {
        "text": "source path part_id place anchor text body cwd became",
        "number": "ordinal first_line last_line since_ns skew_ns", "flag": "present",
    },
    "unsettled": {"text": "place anchor source", "number": "noted"},
    # summaries and calls of LLMs
    "summaries": {
        "text": "part_id content_hash text model tags records problem reply_key", "number": "attempts", "flag": "skip",
        "text_or_none": "retry_at",
    },
    "llm_replies": {"text": "key backend model reply"},
    "llm_asked": {"text": "key part_id", "flag": "void"},
    "llm_calls": {
        "text": "call_id day backend model", "flag": "settled", "number": "calls input_tokens output_tokens",
        "real": "dollars",
    },
    "llm_leases": {"text": "key call_id until"},
    "llm_failures": {"text": "key problem"},
    "llm_batches": {"text": "batch_id backend model call_id keys", "number": "number"},
    "llm_turns": {"text": "backend", "real": "next_at"},
    "settings": {"text": "name value"},
    # context
    "context_sessions": {"text": "session_id seen_at", "text_or_none": "restarted_at"},
    "context_shown": {"text": "session_id episode_id", "number": "number", "number_or_none": "passage_id"},
    # episodes
    "episodes": {
        **_FACETS,
        "text": f"_id timestamp own_project summary raw_exchange machine path metadata content_hash stored_hash "
        f"{_FACETS['text']}",
        "texts": "tags message_ids message_keys",
        "number": "at number passages edited retrieval_count read_count",
        "text_or_none": "superseded_by superseded_at last_retrieved",
    },
    "passages": {
        **_OF_EPISODE, "text": f"text context terms text_unspaced? context_unspaced? {_OF_EPISODE['text']}",
        "texts": "tags message_ids",
        "number": "_id ordinal seq at",
    },
    "tombstones": {"text": "episode_id deleted_at reason went_with"},
    "tombstone_keys": {"text": "message_key episode_id"},
    "buried_sections": {"text": "episode_id source path place", "data": "kept"},
    # spaces
    "spaces": {
        "text": "key model_id query_prefix passage_prefix pooling precision token_variant status", "texts": "variants",
        "number": "_id dim generation token_dims", "real": "index_recall?", "real_or_none": "fidelity",
        "data_or_none": "projection",
        "text_or_none": "last_episode written_at",
    },
    "pending": {"text": "episode_id source timestamp", "number": "space_id number missing"},
    # consolidation
    "consolidated": {"text": "episode_id canonical regime", "flag": "undone"},
    "unconsolidated": {"text": "session_id", "number": "noted"},
    "session_notes": {"text": "source session_id root until branch", "number": "noted revision"},
    # questions
    "query_log": {"text": "asked_at query asked", "number": "number found", "text_or_none": "used_at"},
    "query_results": {"text": "episode_id", "number": "number"},
    "events": {"text": "at kind episode_id project", "number": "number process episodes"},
    # conversations
    "chat_sessions": {"text": "session_id title backend model worker_url project created_at updated_at name_history"},
    "chat_messages": {
        "text": "message_id session_id role text at episode_id details records_at", "number": "number feedback",
    },
    # this backend's own
    "store_secret": {"data": "secret"},
    "counters": {"text": "_id", "number": "next", "date": "at?"},
    "writer": {"text": "_id", "number": "turn"},
    "store": {"text": "_id", "number": "version"},
}  # fmt: skip
_OF_SPACES: dict[str, Shape] = {
    "vectors_": {**_OF_EPISODE, "number": "_id seq at", "data": "text? context?"},
    "tokens_": {"number": "_id tokens", "data": "data"},
}
"""By how the name of the collection begins (`space_docs.py`). A passage has a vector of each variant written so far."""
_PARTIAL = "?"


def validator_of(name: str) -> dict[str, Any]:
    """The validator of a collection of ours, as `create` and `collMod` take it.

    :raises KeyError: there is no such collection.
    """
    of_space = next((shape for begin, shape in _OF_SPACES.items() if name.startswith(begin)), None)
    shape = _SHAPES[name] if of_space is None else of_space
    kinds = {field: _KINDS[kind] for kind, names in shape.items() for field in names.split()}
    required = sorted(field for field in kinds if not field.endswith(_PARTIAL))
    properties = {field.removesuffix(_PARTIAL): kind for field, kind in kinds.items()}
    return {"$jsonSchema": {"bsonType": "object", "required": required, "properties": properties}}
