"""What the contract says nothing of: how much is sent to MongoDB, and that both backends select the same."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.model import FileCursor, Part, Source, Variant, record_id
from anamnesis_pipeline.services.embedding_control import coverage
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.mongo import collections, schema
from anamnesis_pipeline.store.records.consolidation import Settlement
from anamnesis_pipeline.store.records.context import Shown
from anamnesis_pipeline.store.records.documents import ParsedDocument, Settled, Unsettled, Verdict
from anamnesis_pipeline.store.records.episodes import Publication
from anamnesis_pipeline.store.records.exclusion import BuriedSection
from anamnesis_pipeline.store.records.forgetting import Selection
from anamnesis_pipeline.store.records.sessions import SessionState
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.store.forgotten_words import fill, forget_half
from anamnesis_tests.store.test_contract_documents import Seen, commit, cursor, publish, section
from anamnesis_tests.support.mongo_watching import Sent, everything
from anamnesis_tests.support.samples import DAY, episode, parsed, part, passages, put, segment, space, unit

MANY = 80


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Store]:
    with closing(open_sqlite(tmp_path / "anamnesis.db", tmp_path / "index")) as held:
        yield held


# --- what is sent ----------------------------------------------------------------------------------------


def sections(count: int, *, line: int = 0, text: str = "text") -> list[Seen]:
    return [section(f"S{n}", f"{text} {n}", line=n + line) for n in range(count)]


def parts_of(store: Store, count: int) -> list[Part]:
    found = [part(segment(f"m{n}", minute=n)) for n in range(count)]
    parsed(store, *found)
    return found


def test_document_costs_as_much_with_many_sections_as_with_few(sent: Sent, store: Store) -> None:
    def cost(found: list[Seen]) -> int:
        return sent.during(lambda: commit(store, *found))

    cursor(store)
    first = cost(sections(2))
    assert cost(sections(MANY)) <= first + 4
    assert cost(sections(MANY, line=5)) <= first + 4
    publish(store, *(each for each, _ in sections(MANY, line=5)))
    assert cost(sections(MANY, text="other")) <= first + 8


def test_publishing_and_settling_many_sections_costs_a_few_calls(sent: Sent, store: Store) -> None:
    old, new = sections(MANY), sections(MANY, text="other")
    commit(store, *old)
    publish(store, *(each for each, _ in old))
    commit(store, *new)
    made = [Publication(each, None, [(episode(each.part_id, source="notes"), [])]) for each, _ in new]
    assert sent.during(lambda: store.episodes.publish(made)) < 40
    noted = store.documents.unsettled("notes", 2 * MANY)
    assert len(noted) == MANY
    verdicts = {o[0].part_id: Verdict(False, n[0].part_id) for o, n in zip(old, new, strict=True)}
    done: list[Settled] = []
    assert sent.during(lambda: done.append(store.documents.settle(noted, verdicts))) < 20
    assert done == [Settled(superseded=MANY)]


CALLS: dict[str, Callable[[Store, list[Part]], Any]] = {
    "hold": lambda store, parts: store.exclusion.hold({p.part_id: f"rule-{p.part_id[0]}" for p in parts}),
    "bury": lambda store, parts: store.forgetting.bury({p.part_id: [f"key of {p.part_id}"] for p in parts}),
    "explain": lambda store, parts: store.exclusion.explain(
        "why", [p.part_id for p in parts], {record_id(p.part_id, 0): p.part_id for p in parts}
    ),
    "stood_in": lambda store, parts: store.exclusion.stood_in([p.part_id for p in parts]),
    "entries_of": lambda store, parts: store.exclusion.entries_of([p.part_id for p in parts]),
    "lift": lambda store, parts: store.exclusion.lift([p.part_id for p in parts]),
    "bury_sections": lambda store, parts: store.exclusion.bury_sections(
        BuriedSection(p.part_id, "logs", f"{n}.md", "place", b"") for n, p in enumerate(parts)
    ),
    "note_asked": lambda store, parts: store.llm.note_asked({f"k{p.part_id}": p for p in parts}),
    "put_failures": lambda store, parts: store.llm.put_failures({f"k{p.part_id}": "no" for p in parts}),
    "show": lambda store, parts: store.context.show("s", [Shown(p.part_id) for p in parts], DAY),
    "parts": lambda store, parts: store.forgetting.parts([p.part_id for p in parts]),
    "remove": lambda store, parts: store.documents.remove([p.part_id for p in parts]),
    "seen_in": lambda store, parts: store.documents.seen_in([("logs", f"{p.part_id}.md") for p in parts]),
}


def test_a_call_about_many_rows_is_a_few_commands(sent: Sent, store: Store) -> None:
    parts = parts_of(store, MANY)
    for name, call in CALLS.items():
        assert sent.during(partial(call, store, parts)) < 40, name


def test_consolidating_many_episodes_is_a_few_commands(sent: Sent, store: Store) -> None:
    names = [f"{letter}{n}" for letter in "ab" for n in range(MANY)]
    store.episodes.put([(episode(name, source="logs", session_id="s"), passages("text")) for name in names])
    (session,) = store.consolidation.changed(9)
    behind = {f"a{n}": f"b{n}" for n in range(MANY)}
    done: list[Settlement] = []
    assert sent.during(lambda: done.append(store.consolidation.settle(session, behind))) < 25
    assert sent.during(lambda: done.append(store.consolidation.settle(session, dict.fromkeys(behind)))) < 25
    assert done == [Settlement(superseded=MANY), Settlement(revived=MANY)]
    assert sent.during(store.consolidation.note_all) < 10


def test_joining_many_sessions_is_a_few_commands(sent: Sent, store: Store) -> None:
    sessions = [f"s{n}" for n in range(MANY)]
    store.episodes.put([(episode(name, source="logs", session_id=name), passages("text")) for name in sessions])
    states: list[SessionState] = []
    assert sent.during(lambda: states.extend(store.sessions.states(sessions))) < 10
    assert sent.during(lambda: store.sessions.join(states, "s0")) < 12
    assert sent.during(lambda: store.sessions.settle(states[1:], None, states[:1])) < 12
    assert store.sessions.states(sessions[:1]) == []


def test_texts_are_replaced_and_removed_fifty_at_a_time(sent: Sent, store: Store) -> None:
    parts = parts_of(store, 50)
    assert sent.during(lambda: store.forgetting.replace_parts([replace(p, lead="new") for p in parts])) < 20
    assert sent.during(lambda: store.forgetting.remove_parts([p.part_id for p in parts])) < 15


def test_more_values_than_a_query_names_are_asked_for_in_several(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of(store, 7)
    found = sections(7)
    commit(store, *found)
    monkeypatch.setattr(collections, "VALUES_AT_ONCE", 3)
    ids = [p.part_id for p in parts]
    assert {p.part_id for p in store.forgetting.parts([*ids, *ids, "none"])} == set(ids)
    assert store.documents.same_text([p.part_id for p, _ in found]) == {p.part_id for p, _ in found}
    store.forgetting.bury({key: [f"key of {key}"] for key in ids})
    assert store.exclusion.entries_of(ids) == {key: key for key in ids}
    assert store.exclusion.lift(ids).tombstones == 7


def test_a_limit_of_none_yields_none(store: Store) -> None:
    parts_of(store, 2)
    assert store.exclusion.waiting("logs", "", 0) == []
    assert store.forgetting.parts_after("", 0) == []
    assert store.documents.unsettled("notes", 0) == []
    assert store.exclusion.tombstones(0) == []
    assert store.queries.unanswered(0) == []


# --- what is selected ------------------------------------------------------------------------------------


def fill_places(store: Store) -> None:
    """Parts and episodes in sources whose folders lie in, above and beside each other."""
    store.files.put_sources(
        [
            Source("logs", "box", "/root", "-code"),
            Source("deep", "box", "/root", "-code/in"),
            Source("top", "box", "/root", "."),
            Source("bare", "box", "/root/-codex", ""),
        ]
    )
    for n, source in enumerate(("logs", "deep", "top", "bare", "unknown")):
        path = f"a_{n}%.jsonl"
        parts = [
            part(
                segment(f"{source} {m}", minute=2 * n + m),
                source=source,
                path=path,
                session_id=f"s{m}",
                project=f"p{n % 2}",
            )
            for m in range(2)
        ]
        parsed(store, *parts, source=source, path=path)
        put(
            store,
            parts[0].part_id,
            "text",
            source=source,
            path=f"/root/-code/{path}",
            session_id="s0",
            minute=2 * n,
            project=f"p{n % 2}",
        )
    put(store, "posted", "text", minute=3, path="/root/-code")


PATHS = (
    "",
    "/",
    "/root",
    "/root/",
    "/root/-code",
    "/root/-code/",
    "/root/-code/in",
    "/root/-code/a_0%.jsonl",
    "/root/-code/in/a_1%.jsonl",
    "/root/a_2%.jsonl",
    "/root/-co",
    "/root/-codex/a_3%.jsonl",
    "a_0%.jsonl",
    "/x",
)
REST: tuple[dict[str, Any], ...] = (
    {},
    {"session_id": "s1"},
    {"projects": ("p1", "acme/api")},
    {"sources": ("logs", "top", "unknown")},
    {"sources": ()},
    {"since": DAY + timedelta(minutes=2)},
    {"until": DAY + timedelta(minutes=5)},
    {"ids": ()},
    {"ids": ("posted", "none"), "since": DAY},
)


def test_the_same_is_selected_to_be_forgotten_as_in_sqlite(store: Store, embedded: Store) -> None:
    for each in (store, embedded):
        fill_places(each)
    for path, rest in itertools.product(PATHS, REST):
        what = Selection(path=path, **rest)
        assert store.forgetting.matching(what) == embedded.forgetting.matching(what), what
    assert len(store.forgetting.matching(Selection())) == 10


def test_a_mark_in_a_text_is_no_expression(store: Store) -> None:
    cursor(store)
    odd = replace(section("One", "first")[0], prompt="$source", cwd="$$ROOT", project="{$x}")
    seen = section("One", "first")[1]
    assert commit(store, (odd, seen)) == 1
    assert commit(store, (replace(odd, prompt="$path"), seen)) == 0
    (stored,) = store.forgetting.parts([odd.part_id])
    assert (stored.prompt, stored.cwd, stored.project) == ("$path", "$$ROOT", "{$x}")
    store.exclusion.hold({odd.part_id: "$held_by"})
    assert store.exclusion.held() == {"$held_by": 1}


# --- what is left ----------------------------------------------------------------------------------------


def test_nothing_of_a_forgotten_text_is_in_any_collection(store: Store, tmp_path: Path) -> None:
    words = fill(store)
    held = everything(tmp_path)
    assert all(word in held for own in words.values() for word in own[:5])
    those = forget_half(store, words)
    assert store.forgetting.scrub() == []
    held = everything(tmp_path)
    assert [word for own in those.gone.values() for word in own if word in held] == []
    assert all(own[5] in held for own in those.kept.values())


def test_what_the_server_keeps_by_itself_is_named_with_the_place(store: Store) -> None:
    places = store.forgetting.keeps()
    assert any("oplog" in place for place in places)
    assert all(place.startswith("MongoDB 127.0.0.1") for place in places)


def test_more_documents_than_a_transaction_takes_are_each_whole(store: Store) -> None:
    count = MAX_ROWS_PER_WRITE // 3 + 5
    files = [(FileCursor("notes", f"{n}.md", lines=9, version=1), n) for n in range(count)]
    assert all(store.files.commit_crawls([(None, file, None) for file, _ in files]))
    given = [
        ParsedDocument(file, replace(file, parsed_lines=9), [section(f"S{n}", f"text {n}", path=file.path)])
        for file, n in files
    ]
    assert store.documents.commit(given) == [1] * count
    assert store.documents.commit(given) == [None] * count
    assert store.documents.sightings_at([]) == []
    assert store.documents.settle([Unsettled("no", "such", 1)], {}) == Settled()


# --- counts ----------------------------------------------------------------------------------------------


def test_what_is_embedded_is_counted_and_not_estimated(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.spaces.put(space("s"))
    keys = put(store, "e", "one", "two")
    store.vectors.put("s", Variant.TEXT, keys[:1], unit(1, 0, 0, 0)[None])
    monkeypatch.setattr(collections.Collection, "size", lambda self: 0)  # as it may be after the server crashed
    progress = store.vectors.progress("s")
    assert (progress.episodes, progress.episodes_done, progress.passages, progress.passages_done) == (1, 0, 2, 1)
    assert store.vectors.count("s") == 1
    assert store.text.check() == []


COUNTS: dict[str, tuple[Callable[[Store], Any], str, set[str]]] = {
    "names of projects": (lambda store: store.projects.names(), "episodes", {"own_project", "project"}),
    "sources": (lambda store: store.overview.sources(), "episodes", {"source", "timestamp"}),
    "sessions": (lambda store: store.consolidation.note_all(), "episodes", {"session_id"}),
    "events": (lambda store: store.events.counts(), "events", {"kind"}),
}


@pytest.mark.parametrize("count", sorted(COUNTS))
def test_counts_of_all_come_of_an_index(sent: Sent, store: Store, monkeypatch: pytest.MonkeyPatch, count: str) -> None:
    pipelines: list[list[dict[str, Any]]] = []
    aggregate = collections.Collection.aggregate

    def noted(self: collections.Collection, stages: Any) -> Any:
        pipelines.append(stages)
        return aggregate(self, stages)

    monkeypatch.setattr(collections.Collection, "aggregate", noted)
    work, name, fields = COUNTS[count]
    work(store)
    assert ("aggregate", name) in sent.commands
    ((first, _),) = pipelines
    indexes = [index.fields for index in schema.COLLECTIONS[name]]
    assert [index for index in indexes if {index[0]} == first["$match"].keys() and fields <= set(index)]


def test_counts_of_questions_and_vectors_take_few_commands(sent: Sent, store: Store) -> None:
    store.spaces.put(replace(space("s"), status="active"))
    put(store, "e", "text")
    store.queries.note("found", {}, ["e"], DAY)
    assert sent.during(store.queries.counts) == 3
    assert sent.during(lambda: coverage(store)) <= 6, sent.commands
