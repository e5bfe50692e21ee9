"""Every collection of the database is copied, or made of others."""

import pytest

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo import copying, spaces
from anamnesis_pipeline.store.mongo.copying import DERIVED
from anamnesis_pipeline.store.mongo.facets import FACETS
from anamnesis_pipeline.store.mongo.schema import COLLECTIONS, validator_of
from anamnesis_pipeline.store.tables import BY_NAME, EPISODES, PASSAGES, PENDING, SPACES, TABLES
from anamnesis_tests.support.samples import put, space

RENAMED = {SPACES.name: {"space_id": "_id"}, EPISODES.name: {"episode_id": "_id"}, PASSAGES.name: {"passage_id": "_id"}}
COMPUTED = {
    "files": {"incomplete", "to_parse"},
    "parts": {"to_publish", "to_summarize"},
    PENDING.name: {"episode_id"},
    PASSAGES.name: {"terms", "seq", *FACETS},
    EPISODES.name: {"at", "layer", "read_often"},
}


def test_every_collection_is_copied_or_made_of_others() -> None:
    copied = BY_NAME.keys() | {"counters"}
    assert copied | DERIVED.keys() == COLLECTIONS.keys()
    assert not copied & DERIVED.keys()


def test_every_field_of_a_document_is_copied_or_computed() -> None:
    for table in (SPACES, EPISODES, PASSAGES, PENDING, *TABLES):
        names = {RENAMED.get(table.name, {}).get(name, name) for name in table.fields}
        required = validator_of(table.name)["$jsonSchema"]["required"]
        assert names | COMPUTED.get(table.name, set()) == {*required} | names & {"episode_id"}, table.name


def test_a_row_that_is_too_large_for_a_document_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = next(table for table in TABLES if table.name == "llm_replies")
    row = replies.row(["the key", "ollama", "m", "\u20ac" * 400])
    store.copies.write(replies, [row])
    monkeypatch.setattr(copying, "MAX_BYTES", 1_000)
    with pytest.raises(GiveUp, match="of llm_replies the row the key has"):
        store.copies.write(replies, [row])


def test_what_an_unfinished_space_lacks_is_left_out_with_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, "e", "text")
    store.spaces.put(space("s"))
    with monkeypatch.context() as killed:
        killed.setattr(spaces.MongoSpaces, "finish_drops", lambda self: None)
        store.spaces.drop("s")
    with store.copies.reading() as now:
        assert now.page(SPACES, None) == now.page(PENDING, None) == []
