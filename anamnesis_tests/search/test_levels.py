"""A space is measured with the store it is in; from then on it can find nothing."""

import pytest

from anamnesis_pipeline.embeddings.registry import MINILM
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.pipeline.reembed_state import forget_space
from anamnesis_pipeline.search.floor import BUILT_IN, Confidence
from anamnesis_pipeline.search.levels import is_due, measure_level, stored_level
from anamnesis_pipeline.search.profiles import PROFILES
from anamnesis_pipeline.search.query import Mode
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.searched_memory import SPACE, Memory, embed_query

TEXTS = (
    "The nightly importer skips rows without a currency; they are listed in skipped.csv.",
    "We keep exchange rates for six hours, since the provider updates them four times a day.",
    "The upload worker retries five times with exponential backoff before it gives up.",
    "Invoices are rounded once at the end, not once per line.",
    "The parser takes an empty header for the end of the file.",
    "Feature flags are read when a request begins, never in the middle of it.",
    "Sessions end after thirty minutes without a click.",
    "The mobile app still calls the old endpoint for orders.",
    "Backups of the ledger are tried out every Monday.",
    "Search results are kept for a minute in the browser.",
)
UNRELATED = "Which violin concerto did the orchestra rehearse yesterday evening?"
RELATED = "How often does the upload worker retry before it gives up?"


@pytest.fixture
def filled(memory: Memory) -> Memory:
    for text in TEXTS:
        memory.add(text)
    return memory


@pytest.fixture
def measured(filled: Memory) -> Memory:
    measure_level(filled.store, SPACE, embed_query)
    return filled


def test_a_measured_space_answers_what_it_knows_and_nothing_else(measured: Memory) -> None:
    assert measured.ids(RELATED)[0] == "e003"
    assert measured.ids(UNRELATED) == []
    assert len(measured.ids(UNRELATED, min_score=0.0)) > 0
    assert len(measured.ids("orchestra worker", mode=Mode.SEMANTIC)) > 0


def test_a_space_that_was_not_measured_is_never_silent(filled: Memory) -> None:
    assert stored_level(filled.store, SPACE) is None
    assert len(filled.ids(UNRELATED)) > 0


def test_what_has_all_words_of_a_question_answers_it_however_far_it_is(measured: Memory) -> None:
    far = measured.add("Concerto tickets: the orchestra refunded us. " + " ".join(TEXTS))
    measured.add("A concerto for two pianos")
    assert measured.ids(UNRELATED) == []
    assert measured.ids("orchestra concerto") == [far]
    assert measured.ids("orchestra concerto", profile=PROFILES["context"]) == []


def test_weak_answers_are_the_nearest_and_come_when_asked_for(measured: Memory) -> None:
    near = measured.add("A concerto for two pianos")
    asked = measured.ask(UNRELATED, weak=True)
    assert asked.weak
    assert near in [hit.episode.episode_id for hit in asked.hits]
    assert {hit.confidence for hit in asked.hits} == {Confidence.WEAK}
    assert measured.store.episodes.get([near])[near].retrieval_count == 0  # it is no answer
    assert not measured.ask(UNRELATED).weak
    assert measured.ids(UNRELATED) == []


def test_what_answers_well_is_never_called_weak(measured: Memory) -> None:
    far = measured.add("Concerto tickets: the orchestra refunded us. " + " ".join(TEXTS))
    known, held = measured.ask(RELATED, weak=True), measured.ask("orchestra concerto", weak=True)
    assert not known.weak
    assert known.hits[0].confidence is not Confidence.WEAK
    assert not held.weak
    assert [(hit.episode.episode_id, hit.confidence) for hit in held.hits] == [(far, Confidence.FAIR)]


@pytest.mark.parametrize("question", ["was `upright_piano` tuned", "orchestra `upright_piano` concertos", UNRELATED])
def test_confidence_of_a_hit_is_the_same_for_any_top_k(measured: Memory, question: str) -> None:
    """More hits come from deeper lists, which may hold a passage that the others do not."""
    measured.add("Concertos for the orchestra", f"The upright_piano stands in the hall. {' '.join(TEXTS)}")
    for n in range(150):
        measured.add(f"upright_piano {n}")
    words: dict[str, set[Confidence]] = {}
    for top_k in (1, 2, 5, 30):
        for hit in measured.ask(question, weak=True, top_k=top_k).hits:
            words.setdefault(hit.episode.episode_id, set()).add(hit.confidence)
    assert {len(said) for said in words.values()} == {1}


def test_words_for_a_time_need_not_be_stored(measured: Memory) -> None:
    def confidence(question: str) -> float:
        stages = measured.ask(question, explain=True).explanation
        assert stages is not None
        return float(stages["confidence"])  # type: ignore[arg-type]

    dated, placed = (
        confidence(f"How did the upload worker retry in {when}?") for when in ("December 2025", "Novosibirsk")
    )
    assert dated > placed + 0.5


def test_what_has_no_vector_yet_is_found_by_its_words(measured: Memory) -> None:
    new = measured.add("The violin teacher moved to Graz.", embed=False)
    assert new in measured.ids("Where did the violin teacher move?")


def test_a_literal_search_finds_what_has_all_of_it_or_anything_when_asked_for(measured: Memory) -> None:
    wanted = measured.add("The orchestra hires a worker_42 today.")
    assert measured.ids("orchestra worker_42", mode=Mode.EXACT) == [wanted]
    assert measured.ids("who is worker_42?", mode=Mode.EXACT) == [wanted]
    assert measured.ids("orchestra hired", mode=Mode.EXACT) == []
    assert wanted in measured.ids("orchestra hired", mode=Mode.EXACT, min_score=0.0)


def test_a_level_is_measured_anew_once_the_space_has_grown_by_half(filled: Memory) -> None:
    store = filled.store
    assert is_due(store, SPACE)
    measure_level(store, SPACE, embed_query)
    assert not is_due(store, SPACE)
    for text in TEXTS[:4]:
        filled.add(f"{text} Again.")
    assert not is_due(store, SPACE)
    filled.add("One more.")
    assert is_due(store, SPACE)


def test_an_empty_space_is_not_measured(memory: Memory) -> None:
    assert not is_due(memory.store, SPACE)


def test_the_level_is_kept_with_the_space_and_goes_with_it(measured: Memory) -> None:
    kept, again = stored_level(measured.store, SPACE), measure_level(measured.store, SPACE, embed_query)
    assert kept is not None
    assert again is not None
    assert (kept.means, kept.unknown) == (pytest.approx(again.means), again.unknown)
    assert kept.spreads == pytest.approx(again.spreads, abs=1e-6)
    forget_space(measured.store, SPACE.key)
    assert stored_level(measured.store, SPACE) is None


def test_the_model_that_comes_with_the_installation_has_a_level_from_the_start(store: Store) -> None:
    assert stored_level(store, Space("m", MINILM, 384)) == BUILT_IN[MINILM]
