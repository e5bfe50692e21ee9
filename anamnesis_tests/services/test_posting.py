"""What is posted is masked, stored, embedded behind the answer, and patched; edits outlast the growth of logs."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Embedded, Role
from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.errors import (
    AnamnesisError,
    EpisodeConflict,
    EpisodeNotFound,
    InvalidEpisode,
    ModelLoading,
    RetryLater,
    StoreBusy,
)
from anamnesis_pipeline.model import Episode, EpisodeFilter, Passage, Space, StoredPassage, Variant
from anamnesis_pipeline.parsing.redaction.masking import Redactor
from anamnesis_pipeline.pipeline.embed import embed_passages
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.services import posted_vectors, wiring
from anamnesis_pipeline.services.folder_project import project_meant, projects_alike
from anamnesis_pipeline.services.posted_vectors import PostedVectors
from anamnesis_pipeline.services.posting import EMBEDDED_AT_ONCE, EpisodeDraft, EpisodeWriter
from anamnesis_pipeline.services.wiring import open_pieces
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.conftest import OpenStore
from anamnesis_tests.support.archived_logs import Home, record, unmasked
from anamnesis_tests.support.hashing_embedder import HashingEmbedder
from anamnesis_tests.support.samples import put, space, unit

SPACE = Space("hashing", "hashing-32", 32)
KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
NOON = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)


def poster_of(store: Store, embed: Callable[[Sequence[StoredPassage], Space], object] | None = None) -> EpisodeWriter:
    def embed_now(passages: Sequence[StoredPassage], space: Space) -> None:
        if embed is not None:
            embed(passages, space)
        else:
            embed_passages(store, space, passages, HashingEmbedder(32))

    store.spaces.put(SPACE)
    store.spaces.activate(SPACE.key)
    return EpisodeWriter(store, Redactor(b"0123456789abcdef").mask_text, minilm_pieces(), embed_now)


@pytest.fixture
def poster(store: Store) -> EpisodeWriter:
    return poster_of(store)


def draft(summary: str = "We chose Postgres.", **fields: Any) -> EpisodeDraft:
    return EpisodeDraft(summary, **{"instance": "mac", "project": "acme/api", **fields})


def everything(store: Store, episode_id: str) -> str:
    """All that the store gives back of an episode, as one text."""
    return repr(store.episodes.get([episode_id])) + repr(store.episodes.passages_of(episode_id))


def test_a_new_episode_is_normalized_stored_and_embedded_at_once(store: Store, poster: EpisodeWriter) -> None:
    episode, created = poster.create(draft(" We\n chose\t Postgres. ", raw_exchange="user: which?", tags=("db", "db")))
    assert created
    assert (episode.summary, episode.tags, episode.source) == ("We chose Postgres.", ("db",), "direct")
    assert store.episodes.get([episode.episode_id]) == {episode.episode_id: episode}
    assert store.vectors.count(SPACE.key) == 2
    assert store.vectors.pending_sources(SPACE.key) == {}


@pytest.mark.parametrize("summary", ["", " ", "\n\t "])
def test_a_blank_summary_is_refused_by_name(poster: EpisodeWriter, summary: str) -> None:
    with pytest.raises(InvalidEpisode) as refused:
        poster.create(draft(summary))
    assert refused.value.field == "summary"


def test_the_same_content_again_is_no_second_episode(store: Store, poster: EpisodeWriter) -> None:
    first, _ = poster.create(draft(episode_id="e"))
    again, created = poster.create(draft(" We chose  Postgres. ", episode_id="e"))
    assert (created, again) == (False, first)
    assert store.episodes.count(EpisodeFilter()) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"summary": "We chose SQLite."},
        {"raw_exchange": "more"},
        {"project": "acme/web"},
        {"tags": ("x",)},
        {"timestamp": NOON + timedelta(seconds=1)},
        {"metadata": {"a": 1}},
        {"kind": "decision"},
    ],
)
def test_other_content_under_the_same_id_is_a_conflict(
    store: Store, poster: EpisodeWriter, other: dict[str, Any]
) -> None:
    kept, _ = poster.create(draft(episode_id="e", timestamp=NOON))
    with pytest.raises(EpisodeConflict, match="PATCH /api/episodes/e"):
        poster.create(draft(**{"summary": kept.summary, "episode_id": "e", "timestamp": NOON, **other}))
    assert store.episodes.get(["e"]) == {"e": kept}


@pytest.mark.parametrize("alike", [True, False])
def test_of_two_that_post_one_id_at_once_one_creates_it(open_store: OpenStore, alike: bool) -> None:
    posters = [poster_of(open_store()) for _ in range(2)]
    for n in range(10):
        barrier, outcomes = threading.Barrier(2), []

        def post(number: int, n: int = n, barrier: threading.Barrier = barrier, outcomes: list[str] = outcomes) -> None:
            barrier.wait(60)
            try:
                summary = "the same" if alike else f"mine, {number}"
                created = posters[number].create(draft(summary, episode_id=f"e{n}"))[1]
                outcomes.append("created" if created else "unchanged")
            except EpisodeConflict:
                outcomes.append("conflict")

        threads = [threading.Thread(target=post, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(outcomes) == ["created", "unchanged"] if alike else ["conflict", "created"]


def test_no_secret_is_stored_wherever_it_stands(store: Store, poster: EpisodeWriter) -> None:
    poster.create(
        draft(
            f"The token is {KEY}",
            raw_exchange=f"export GITHUB_TOKEN={KEY}\n" * 50,
            tags=(KEY, "plain"),
            kind="note",
            metadata={"note": KEY, KEY: 1, "list": [{"deep": f"x {KEY}"}], "password": "hunter2-Tr0ub4dor"},
            project=f"https://x:{KEY}@github.com/acme/api",
            instance=f"mac {KEY}",
            episode_id="e",
        )
    )
    assert KEY not in everything(store, "e")
    assert "hunter2-Tr0ub4dor" not in everything(store, "e")
    assert store.episodes.get(["e"])["e"].metadata["masked"] == {"github": 50}
    poster.patch("e", {"summary": f"again {KEY}", "metadata": {"a": KEY}, "tags": [KEY], "project": KEY})
    assert KEY not in everything(store, "e")
    assert "plain" not in store.episodes.get(["e"])["e"].tags
    poster.patch("e", {"summary": "nothing any more", "raw_exchange": ""})
    assert "masked" not in store.episodes.get(["e"])["e"].metadata


def test_values_that_are_no_strings_stay_what_they_are(poster: EpisodeWriter) -> None:
    metadata = {"n": 1, "x": 0.5, "t": True, "nothing": None, "list": [1, "a"], "quote": 'say "hi" and \\ go'}
    assert poster.create(draft(metadata=metadata))[0].metadata == metadata


def test_a_long_text_is_stored_whole_and_indexed_whole(store: Store, poster: EpisodeWriter) -> None:
    raw = "".join(f"line {n} of a long exchange\n" for n in range(8_000))
    assert len(raw) > 200_000
    poster.create(draft(raw_exchange=raw, episode_id="e"))
    assert store.episodes.get(["e"])["e"].raw_exchange == raw
    passages = [stored.passage for stored in store.episodes.passages_of("e")]
    assert "".join("".join(p.text.split()) for p in passages[1:]) == "".join(raw.split())
    pending = store.vectors.pending_sources(SPACE.key)
    assert pending == {"direct": len(passages) - EMBEDDED_AT_ONCE}, "the pipeline embeds what would take long"
    (found,) = store.text.matching(["7999"], 1, EpisodeFilter())
    assert found.episode_id == "e"


def test_an_episode_has_those_just_before_it_as_context(store: Store, poster: EpisodeWriter) -> None:
    for minute, summary in [(0, "zero"), (40, "first"), (50, "second"), (55, "third")]:
        poster.create(draft(summary, timestamp=NOON + timedelta(minutes=minute), episode_id=summary))
    poster.create(draft("elsewhere", timestamp=NOON + timedelta(minutes=56), project="other"))
    poster.create(draft("now", timestamp=NOON + timedelta(minutes=58), episode_id="now"))

    def context(episode_id: str) -> str:
        return store.episodes.passages_of(episode_id)[0].passage.context

    assert context("now") == "2026-03-14 api\nsecond\nthird"
    assert context("first") == "2026-03-14 api", "forty minutes later is another conversation"
    poster.patch("now", {"summary": "now and here"})
    assert context("now") == "2026-03-14 api\nsecond\nthird", "an episode is not its own context"


def test_a_patch_is_found_by_its_new_text_in_words_and_vectors(store: Store, poster: EpisodeWriter) -> None:
    poster.create(draft("The zeppelin hangar", episode_id="e"))
    old = store.episodes.passages_of("e")[0].passage_id
    edited = poster.patch("e", {"summary": " The  submarine dock ", "tags": ["sea"]})
    assert (edited.summary, edited.tags, edited.instance) == ("The submarine dock", ("sea",), "mac")
    (stored,) = store.episodes.passages_of("e")
    assert (stored.passage.text, stored.passage_id != old) == ("The submarine dock", True)
    vector = HashingEmbedder(32).embed(["The submarine dock"], "passage")[0]
    (nearest,) = store.vectors.nearest(SPACE.key, SPACE.variants[0], vector, 1, EpisodeFilter())
    assert nearest.score == pytest.approx(1.0, abs=1e-3)
    assert store.text.matching(["zeppelin"], 5, EpisodeFilter()) == []


def test_a_patch_of_tags_keeps_passages_and_their_vectors(store: Store, poster: EpisodeWriter) -> None:
    poster.create(draft(episode_id="e"))
    before = store.episodes.passages_of("e")
    poster.patch("e", {"tags": ["x"], "status": "superseded", "superseded_by": "f"})
    assert store.episodes.passages_of("e") == before
    stored = store.episodes.get(["e"])["e"]
    assert (stored.tags, stored.status, stored.superseded_by) == (("x",), "superseded", "f")


def test_a_patch_names_what_is_wrong(poster: EpisodeWriter) -> None:
    with pytest.raises(EpisodeNotFound, match="'nobody'"):
        poster.patch("nobody", {"summary": "x"})
    poster.create(draft(episode_id="e"))
    for field, value in (("episode_id", "f"), ("summary", " "), ("source", "x")):
        with pytest.raises(InvalidEpisode) as refused:
            poster.patch("e", {field: value})
        assert refused.value.field == field


@pytest.mark.parametrize("problem", [ModelLoading("loading"), StoreBusy("locked"), AnamnesisError("space is gone")])
def test_an_episode_that_cannot_be_embedded_is_found_by_words(store: Store, problem: AnamnesisError) -> None:
    def fail(passages: Sequence[StoredPassage], space: Space) -> None:
        raise problem

    assert EpisodeWriter(store, Redactor(b"0123456789abcdef").mask_text, minilm_pieces(), None).create(draft())[1]
    episode, created = poster_of(store, fail).create(draft("The zeppelin hangar"))
    assert created
    assert [p.episode_id for p in store.text.matching(["zeppelin"], 5, EpisodeFilter())] == [episode.episode_id]
    assert store.vectors.pending_sources(SPACE.key) == {"direct": 2}


def test_an_episode_without_an_id_gets_one_of_its_day(poster: EpisodeWriter) -> None:
    ids = {poster.create(draft(timestamp=NOON))[0].episode_id for _ in range(2)}
    assert [episode_id.startswith("ep_20260314_") for episode_id in ids] == [True, True]


def test_a_new_summary_of_a_logged_episode_keeps_its_messages(store: Store, poster: EpisodeWriter) -> None:
    logged = Episode(
        "part-1",
        "host--logs--00000000",
        datetime(2026, 10, 1, tzinfo=UTC),
        "host",
        "~/code/api",
        "exchange",
        "first summary",
        "[User]\nwhy is the ledger wrong",
        message_keys=("u:1",),
        message_ids=("uuid-1",),
    )
    said = Passage(0, "why is the ledger wrong", "2026-10-01 api", ("uuid-1",))
    store.episodes.put([(logged, [said])])
    for summary in ("The kumquat module rounds twice", "The quince module rounds twice"):
        poster.patch("part-1", {"summary": summary})
    passages = [held.passage for held in store.episodes.passages_of("part-1")]
    assert [passage.message_ids for passage in passages] == [("uuid-1",), ()]
    assert [passage.text for passage in passages] == ["why is the ledger wrong", "The quince module rounds twice"]
    assert store.text.matching(["quince"], 5, EpisodeFilter())
    assert not store.text.matching(["kumquat"], 5, EpisodeFilter())


def test_summary_is_masked_before_its_lines_are_joined(store: Store, poster: EpisodeWriter) -> None:
    secret = "hunter2-" + "Zx9kQ71m"
    episode, _ = poster.create(draft(f"Logins:\n| user | password |\n|---|---|\n| ann | {secret} |"))
    assert episode.summary.startswith("Logins: | user | password |")
    assert secret not in everything(store, episode.episode_id)


# --- vectors that are made behind the answer --------------------------------------------------------------


WAIT_S = 60


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a model that is held."""
    monkeypatch.setattr(posted_vectors, "WAIT_S", 0.0)


class Model:
    """Embeds once it is let; notes how many texts came at once."""

    model_id, dim = "model of s", 4

    def __init__(self) -> None:
        self.may_go_on, self.calls = threading.Event(), list[int]()
        self.problems: list[Exception] = []

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        return self.embed_with_tokens(texts, role).vectors

    def embed_with_tokens(self, texts: Sequence[str], role: Role) -> Embedded:
        assert self.may_go_on.wait(WAIT_S)
        self.calls.append(len(texts))
        if self.problems:
            raise self.problems.pop(0)
        return Embedded(np.stack([unit(1.0, len(text), 0.0, 0.0) for text in texts]), None)


@contextmanager
def working(store: Store, model: Model) -> Iterator[PostedVectors]:
    store.spaces.put(space("s"))
    store.spaces.activate("s")
    vectors = PostedVectors(store, lambda active: (active, model))
    try:
        yield vectors
    finally:
        model.may_go_on.set()
        vectors.close()


def stored(store: Store, *texts: str) -> list[StoredPassage]:
    put(store, texts[0], *texts)
    return store.episodes.passages_of(texts[0])


def test_post_is_found_by_words_while_its_vector_is_made(store: Store) -> None:
    model = Model()
    with working(store, model) as vectors:
        poster = EpisodeWriter(store, lambda text: (text, Counter()), open_pieces(), vectors.add)
        posted, created = poster.create(EpisodeDraft("the zeppelin landed", "main", "acme"))
        assert created
        assert [hit.episode_id for hit in store.text.matching(["zeppelin"], 5, EpisodeFilter())] == [posted.episode_id]
        assert store.vectors.pending_sources("s") == {"direct": 1}
        model.may_go_on.set()
        assert vectors.wait(WAIT_S)
        assert store.vectors.pending_sources("s") == {}


def test_post_is_answered_with_its_vector_where_that_comes_soon(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posted_vectors, "WAIT_S", WAIT_S)
    model = Model()
    model.may_go_on.set()
    with working(store, model) as vectors:
        vectors.add(stored(store, "text"), store.spaces.active())
        assert store.vectors.pending_sources("s") == {}


def test_posts_that_wait_are_embedded_together(store: Store) -> None:
    model = Model()
    with working(store, model) as vectors:
        for number in range(40):
            vectors.add(stored(store, f"text {number} of many" + "." * number), store.spaces.active())
        model.may_go_on.set()
        assert vectors.wait(WAIT_S)
        assert store.vectors.pending_sources("s") == {}
        assert len(model.calls) <= 4


def test_deleted_or_embedded_passage_is_not_embedded_again(store: Store) -> None:
    model = Model()
    with working(store, model) as vectors:
        first = stored(store, "holds the worker")
        gone, done = stored(store, "is deleted"), stored(store, "is embedded meanwhile")
        for passages in (first, gone, done):
            vectors.add(passages, store.spaces.active())
        store.episodes.delete("is deleted")
        store.vectors.put("s", Variant.TEXT, [done[0].passage_id], unit(0.0, 0.0, 0.0, 1.0)[None])
        model.may_go_on.set()
        assert vectors.wait(WAIT_S)
        assert sum(model.calls) <= 3
        kept = store.vectors.get("s", Variant.TEXT, [done[0].passage_id, gone[0].passage_id])
        assert list(kept) == [done[0].passage_id]
        assert store.vectors.pending_sources("s") == {}


@pytest.mark.parametrize("problem", [RetryLater("the model is loading"), ValueError("a defect")])
def test_posts_after_one_that_fails_are_embedded(store: Store, problem: Exception) -> None:
    model = Model()
    model.problems.append(problem)
    model.may_go_on.set()
    with working(store, model) as vectors:
        vectors.add(stored(store, "fails"), store.spaces.active())
        assert vectors.wait(WAIT_S)
        vectors.add(stored(store, "succeeds"), store.spaces.active())
        assert vectors.wait(WAIT_S)
        assert store.vectors.pending_sources("s") == {"direct": 1}, "the pipeline finds it"


def test_what_is_too_much_is_left_to_the_pipeline(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posted_vectors, "MAX_WAITING", 3)
    model = Model()
    with working(store, model) as vectors:
        for number in range(9):
            vectors.add(stored(store, f"text {number}"), store.spaces.active())
        model.may_go_on.set()
        assert vectors.wait(WAIT_S)
        assert 2 <= store.vectors.pending_sources("s")["direct"] <= 6


# --- episodes of logs -------------------------------------------------------------------------------------


@pytest.fixture
def memory(store: Store, tmp_path: Path) -> Home:
    """A store fed from one log that still grows."""
    home = Home(tmp_path, store)
    home.say("why is the ledger wrong", "The zeppelin module rounds twice.", timestamp=now())
    return home


def now() -> str:
    """So that a part is still open."""
    return datetime.now(UTC).isoformat()


def go_on(memory: Home) -> None:
    memory.write([record("assistant", "The quagga module is fixed now.", 3, timestamp=now())])


def patch(memory: Home, episode_id: str, **changes: object) -> None:
    EpisodeWriter(memory.store, unmasked, wiring.open_pieces(), None).patch(episode_id, changes)


def test_what_is_said_after_a_delete_is_kept(memory: Home) -> None:
    (episode,) = memory.ingest(unmasked)
    assert memory.store.episodes.delete(episode.episode_id)
    go_on(memory)
    (later,) = memory.ingest(unmasked)
    assert later.episode_id != episode.episode_id
    assert memory.finds("quagga") == {later.episode_id}
    assert memory.finds("zeppelin") == set()


def test_an_edit_outlasts_the_growth_of_its_part(memory: Home) -> None:
    (episode,) = memory.ingest(unmasked)
    patch(memory, episode.episode_id, summary="Ledger: kumquat rounding", tags=("billing",), project="shop")
    go_on(memory)
    for _ in range(2):
        (grown,) = memory.ingest(unmasked)
        assert (grown.summary, grown.tags, grown.project) == ("Ledger: kumquat rounding", ("billing",), "shop")
        assert "quagga" in grown.raw_exchange
        for word in ("zeppelin", "quagga", "kumquat"):
            assert memory.finds(word) == {episode.episode_id}
    ordinals = [held.passage.ordinal for held in memory.store.episodes.passages_of(episode.episode_id)]
    assert ordinals == list(range(len(ordinals)))


def test_a_rewritten_text_is_not_overwritten_by_its_log(memory: Home) -> None:
    (episode,) = memory.ingest(unmasked)
    patch(memory, episode.episode_id, raw_exchange="only this is true")
    go_on(memory)
    (kept,) = memory.ingest(unmasked)
    assert kept.raw_exchange == "only this is true"


def test_alike_projects_are_named_without_private_ones(store: Store) -> None:
    for project in ("acme/shop", "secret/shop", "garden"):
        put(store, f"of {project}", "It is open.", project=project)
    private = Private((), ("secret/shop",))
    assert projects_alike(store, private, "shop") == ["acme/shop"]
    assert projects_alike(store, NOTHING_PRIVATE, "shop") == ["acme/shop", "secret/shop"]
    assert [project_meant(store, private, name) for name in ("shop", "garden", "den")] == ["acme/shop", "garden", "den"]
    assert project_meant(store, NOTHING_PRIVATE, "shop") == "shop"
