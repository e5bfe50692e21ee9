"""A memory with something in every table, and what it answers."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from anamnesis_pipeline.embeddings.base import QueryVectors, query_vectors
from anamnesis_pipeline.model import ChatMessage, ChatSession, Episode, EpisodeFilter, Passage, Source, Space, Variant
from anamnesis_pipeline.pipeline.embed import embed_passages
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.query import Mode, SearchQuery
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.copying import CopyRecords, Digest, line_of, rows_of
from anamnesis_pipeline.store.tables import TABLES
from anamnesis_tests.support.hashing_embedder import HashingEmbedder
from anamnesis_tests.support.samples import DAY

ACTIVE = Space("hashing-64-aaaaaaaa", "hashing-64", 64, token_dims=32)
NEXT = Space("hashing-32-bbbbbbbb", "hashing-32", 32, variants=(Variant.TEXT,))
WORDS = """zeppelin harbor lantern quartz violin meadow compass anchor saffron glacier tunnel orchard beacon falcon
 pepper canvas marble thunder willow ribbon copper saddle velvet cinder""".split()
TOPICS = 60


def text_of(number: int) -> str:
    """Words that several episodes share, each in another company."""
    words = [WORDS[(number * step + step) % len(WORDS)] for step in (1, 3, 5, 7)]
    return f"The {words[0]} of the {words[1]} needs a {words[2]} before /srv/{words[3]}/number_{number}.py runs"


def fill(store: Store) -> None:
    """Episodes of three projects, two spaces, one of them half embedded, and all that lies around them."""
    for space in (ACTIVE, NEXT):
        store.spaces.put(space)
    store.spaces.activate(ACTIVE.key)
    store.spaces.start(NEXT.key)
    store.files.put_sources([Source("box--logs", "box", "/logs", "logs")])
    for number in range(TOPICS):
        _add(store, number)
    for space, episodes in ((ACTIVE, TOPICS - 3), (NEXT, TOPICS // 2)):
        embedder = HashingEmbedder(space.dim, token_dims=space.token_dims)
        for number in range(episodes):
            embed_passages(store, space, store.episodes.passages_of(f"e{number:03}"), embedder)
    _change(store)
    _talk(store)
    fill_the_rest(store.copies)


def _add(store: Store, number: int) -> None:
    episode = Episode(
        episode_id=f"e{number:03}",
        source="box--logs" if number % 2 else "direct",
        instance="main",
        machine="box",
        timestamp=DAY + timedelta(hours=number),
        project=("acme/api", "acme/web", "home")[number % 3],
        kind="decision" if number % 7 == 0 else "note",
        summary=f"On {text_of(number)[:40]}",
        raw_exchange=text_of(number),
        tags=("even",) if number % 2 == 0 else ("odd", "größe"),
        session_id=f"s{number % 5}",
        metadata={"n": number, "ü": [1.5]},
        message_keys=(f"k{number}",),
    )
    texts = [text_of(number), f"Afterwards: {text_of(number + 1)}"][: 1 + number % 2]
    store.episodes.put(
        [(episode, [Passage(n, text, f"[{episode.project}]", (f"u{n}",)) for n, text in enumerate(texts)])]
    )


def _change(store: Store) -> None:
    """Deleted, superseded, read and asked for."""
    store.episodes.delete("e010")
    store.episodes.delete("e057")
    for number in (4, 5):
        known = store.episodes.get([f"e{number:03}"])[f"e{number:03}"]
        said = [stored.passage for stored in store.episodes.passages_of(known.episode_id)]
        store.episodes.replace(replace(known, status="superseded", superseded_by="e020"), said, known.content_hash)
    store.episodes.track(["e001", "e002"], DAY)
    store.settings.set("config.idle_minutes", 45)
    store.settings.set("projects.aliases", {})
    store.queries.note("zeppelin", {"mode": "hybrid"}, ["e001"], DAY)


def _talk(store: Store) -> None:
    """A conversation, which `forget` reads."""
    store.chat.put_session(ChatSession("c1", "Größe of the zeppelin", "claude_cli", "sonnet", "acme/api", DAY, DAY))
    store.chat.add(ChatMessage("m1", "c1", "user", "Which größe has it?", DAY))


def fill_the_rest(copies: CopyRecords) -> None:
    """One row in each table that is still empty; nothing looks at what it says."""
    with copies.reading() as now:
        empty = [table for table in TABLES if not now.count(table)]
    for table in empty:
        row = {name: _sample(name) for name in table.fields}
        copies.write(table, [table.row(row.values())])


_NUMBERS = frozenset(
    """size mtime_ns head_bytes offset generation lines parsed_lines version first_mtime_ns first_line
    archive_offset archive_bytes revision line ordinal last_line since_ns skew_ns noted attempts
    calls input_tokens output_tokens dollars number next_at found process episodes feedback
    passage_id confidence place""".split()
)
_FLAGS = frozenset("gone closed present skip void settled undone".split())
_BYTES = frozenset({"segments", "kept"})
_NONE = frozenset(
    name
    for name in (
        "base_source base_path base_generation base_revision base_offset base_bytes "
        "summary_due held_by retry_at restarted_at used_at"
    ).split()
)


def _sample(name: str) -> Any:
    if name in _NONE:
        return None
    if name in _FLAGS:
        return 1
    return 7 if name in _NUMBERS else b"\x00\xff7" if name in _BYTES else f"{name} \u00e9"


def contents(store: Store) -> dict[str, tuple[int, str]]:
    """Rows and checksum of every table."""
    found = {}
    with store.copies.reading() as now:
        for table in now.tables():
            digest = Digest()
            for row in rows_of(now, table):
                digest.add(line_of(row))
            found[table.name] = (digest.rows, digest.checksum)
    return found


def embed_query(text: str, space: Space) -> QueryVectors:
    return query_vectors(HashingEmbedder(space.dim, token_dims=space.token_dims).embed_with_tokens([text], "query"))


def answers(store: Store, questions: int = 30) -> list[list[tuple[str, float, int]]]:
    """Of each question the hits: episode, score, passage."""
    engine = Engine(store, embed_query)
    return [
        [(hit.episode.episode_id, round(hit.score, 5), hit.passage.passage_id) for hit in engine.search(query).hits]
        for query in map(_question, range(questions))
    ]


def overlap(found: list[list[tuple[str, float, int]]], wanted: list[list[tuple[str, float, int]]]) -> float:
    """Share of the episodes of each answer that both have: stores count words in their own ways, and break ties so."""
    shares = [
        len({hit[0] for hit in one} & {hit[0] for hit in other}) / max(1, len(one), len(other))
        for one, other in zip(found, wanted, strict=True)
        if one or other
    ]
    return sum(shares) / len(shares)


def _question(number: int) -> SearchQuery:
    words = [WORDS[(number + step) % len(WORDS)] for step in (0, 4, 11)]
    where = (
        EpisodeFilter(),
        EpisodeFilter(projects=("acme/api",)),
        EpisodeFilter(tags=("odd",)),
        EpisodeFilter(include_superseded=True),
    )[number % 4]
    mode = (Mode.HYBRID, Mode.SEMANTIC, Mode.HYBRID, Mode.EXACT)[number // 4 % 4]
    text = words[0] if mode is Mode.EXACT else " ".join(words)
    return SearchQuery(text, top_k=10, mode=mode, where=where, track=False, min_score=0, now=DAY + timedelta(days=9))
