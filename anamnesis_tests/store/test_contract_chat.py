"""What every store keeps of conversations."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from anamnesis_pipeline.errors import InvalidEpisode
from anamnesis_pipeline.model import FORGOTTEN, SUMMARY_CHARS, ChatMessage, ChatSession, Citation, EarlierName
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.samples import put

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def session(name: str, minutes: int = 0, **fields: str) -> ChatSession:
    when = NOW + timedelta(minutes=minutes)
    return replace(ChatSession(name, f"About {name}", "ollama", "qwen3", "acme", when, when), **fields)  # type: ignore[arg-type]


def message(number: int, of: str = "s", role: str = "user", **fields: object) -> ChatMessage:
    base = ChatMessage(f"{of}-{number}", of, role, f"text {number}", NOW + timedelta(seconds=number))  # type: ignore[arg-type]
    return replace(base, **fields)  # type: ignore[arg-type]


def test_a_session_is_given_back_as_it_was_put_with_its_messages_in_order(store: Store):
    put(store, "e1", "long text", summary="The crane " * 30, project="acme")
    store.chat.put_session(session("s"))
    cited = (Citation("e1", ("The crane " * 30)[:SUMMARY_CHARS], "acme", NOW, 0.75, standing=True),)
    said = [
        message(1, files=("a plan.txt", "b.md")),
        message(
            2,
            role="assistant",
            citations=cited,
            backend="ollama",
            model="qwen3",
            seconds=1.5,
            input_tokens=10,
            output_tokens=5,
            dollars=0.25,
            stopped=True,
            problem="broke off",
            episode_id="e9",
        ),
    ]
    for each in said:
        store.chat.add(each)
    used = NOW + timedelta(seconds=2)
    assert store.chat.session("s") == replace(session("s"), messages=2, updated_at=used), "the latest message's time"
    assert store.chat.messages("s") == said
    assert store.chat.message("s-2") == said[1]
    store.chat.add(replace(said[0], text="again"))
    assert [each.text for each in store.chat.messages("s")] == ["again", "text 2"]
    assert store.chat.session("s") == replace(session("s"), messages=2, updated_at=used)
    assert (store.chat.session("x"), store.chat.messages("x"), store.chat.message("x")) == (None, [], None)


def test_sessions_are_listed_by_their_last_use_in_pages_and_by_words_of_the_title(store: Store):
    for number in range(5):
        store.chat.put_session(session(f"s{number}", number))
    store.chat.put_session(replace(session("s1", 60), created_at=NOW))
    first = store.chat.sessions(2)
    assert [each.session_id for each in first.items] == ["s1", "s4"]
    second = store.chat.sessions(2, first.next_cursor)
    third = store.chat.sessions(2, second.next_cursor)
    assert [each.session_id for each in [*second.items, *third.items]] == ["s3", "s2", "s0"]
    assert third.next_cursor is None
    assert [each.session_id for each in store.chat.sessions(9, words="ABOUT S3").items] == ["s3"]
    store.chat.rename("s2", "Über Ärger in Łódź", NOW)
    for words in ("über", "ÄRGER", "łódź", "Über Är"):
        assert [each.session_id for each in store.chat.sessions(9, words=words).items] == ["s2"], words
    assert store.chat.sessions(9, words="%").items == []
    with pytest.raises(InvalidEpisode, match="cursor"):
        store.chat.sessions(2, "nonsense")


def test_every_earlier_name_is_kept_with_its_time(store: Store):
    store.chat.put_session(session("s"))
    later = NOW + timedelta(hours=1)
    assert store.chat.rename("s", "Second", NOW)
    assert store.chat.rename("s", "Third", later)
    assert store.chat.rename("s", "Third", later), "the same name again is no other one"
    store.chat.put_session(session("s", 5, worker_url="http://127.0.0.1:11435"))
    found = store.chat.session("s")
    assert found is not None
    assert (found.title, found.name_history) == ("Third", (EarlierName("About s", NOW), EarlierName("Second", later)))
    assert found.worker_url == "http://127.0.0.1:11435"
    assert not store.chat.rename("x", "Title", NOW)


def test_titles_are_written_anew_without_another_name(store: Store):
    store.chat.put_session(session("s"))
    store.chat.rename("s", "Mine", NOW)
    known = store.chat.session("s")
    assert known is not None
    masked = replace(known, title="[gone]", project="[gone]", name_history=(EarlierName("[gone]", NOW),))
    store.chat.rewrite(replace(masked, backend="other"))
    assert store.chat.session("s") == masked
    store.chat.rewrite(session("x"))
    assert store.chat.session("x") is None


def test_what_an_answer_cites_is_told_as_the_episode_is_now(store: Store):
    put(store, "e1", "text", summary="first words", project="acme")
    store.chat.put_session(session("s"))
    cited = (Citation("e1", "first words", "acme", NOW, 0.5), Citation("e2", "never stored", "p", NOW, 0.25))
    store.chat.add(message(1, role="assistant", citations=cited))
    put(store, "e1", "text", summary="other words", project="beta")
    told = store.chat.messages("s")[0].citations
    assert told == (Citation("e1", "other words", "beta", NOW, 0.5), Citation("e2", FORGOTTEN, "", NOW, 0.25))
    store.episodes.delete("e1")
    assert {each.summary for each in store.chat.messages("s")[0].citations} == {FORGOTTEN}


def test_a_session_goes_with_its_messages_and_takes_none_any_more(store: Store):
    for name in ("s", "t"):
        store.chat.put_session(session(name))
        store.chat.add(message(1, name))
    assert store.chat.delete("s")
    assert not store.chat.delete("s")
    store.chat.add(message(2))
    assert (store.chat.messages("s"), len(store.chat.messages("t"))) == ([], 1)


def test_feedback_is_of_answers_and_can_be_taken_back(store: Store):
    store.chat.put_session(session("s"))
    for number, role in enumerate(("user", "assistant", "user", "assistant"), 1):
        store.chat.add(message(number, role=role))
    assert not store.chat.rate("s-1", 1)
    assert not store.chat.rate("x", 1)
    assert store.chat.rate("s-2", 1)
    assert store.chat.rate("s-4", -1)
    assert (store.chat.feedback().up, store.chat.feedback().down) == (1, 1)
    assert [(each.message_id, each.feedback) for each in store.chat.rated(9)] == [("s-4", -1), ("s-2", 1)]
    (first,) = store.chat.rated(1)
    assert [each.message_id for each in store.chat.rated(9, first)] == ["s-2"]
    assert store.chat.rated(9, store.chat.rated(9)[-1]) == []
    assert store.chat.rate("s-4", 0)
    assert [each.message_id for each in store.chat.rated(9)] == ["s-2"]


def test_what_is_forgotten_is_in_no_conversation_and_in_no_title(store: Store):
    put(store, "e1", "the secret plan")
    store.chat.put_session(session("s"))
    cited = (Citation("e0", "quotes", "acme", NOW, 0.5),)
    for number in (1, 2, 3, 4):
        of = "e1" if number < 3 else "e2"
        store.chat.add(message(number, citations=cited, episode_id=of, files=("plan.txt",)))
    store.chat.rename("s", "Mine", NOW)
    assert store.episodes.delete("e1")
    assert [each.text for each in store.chat.messages("s")] == [FORGOTTEN, FORGOTTEN, "text 3", "text 4"]
    assert [len(each.citations) for each in store.chat.messages("s")] == [0, 0, 1, 1]
    assert [len(each.files) for each in store.chat.messages("s")] == [0, 0, 1, 1]
    found = store.chat.session("s")
    assert found is not None
    assert (found.title, found.name_history) == (FORGOTTEN, ())


def test_messages_are_forgotten_by_their_ids_and_a_session_of_nothing_else_goes(store: Store):
    cited = (Citation("e0", "quotes", "acme", NOW, 0.5),)
    for name in ("s", "t"):
        store.chat.put_session(session(name))
        for number in (1, 2):
            store.chat.add(message(number, name, citations=cited, files=("plan.txt",)))
    store.chat.forget(["s-1", "nothing"])
    first, second = store.chat.messages("s")
    assert (first.text, first.citations, first.files) == (FORGOTTEN, (), ())
    assert (second.text, len(second.citations), second.files) == ("text 2", 1, ("plan.txt",))
    assert store.chat.session("s").title == FORGOTTEN  # type: ignore[union-attr]
    store.chat.forget(["s-2"])
    assert (store.chat.session("s"), store.chat.messages("s")) == (None, [])
    store.chat.forget(["t-2"])
    store.chat.forget([])
    assert store.chat.session("t").title == "About t"  # type: ignore[union-attr]
    assert [each.text for each in store.chat.messages("t")] == ["text 1", FORGOTTEN]


def test_an_answer_without_a_word_is_kept_with_why(store: Store):
    store.chat.put_session(session("s"))
    store.chat.add(message(1))
    failed = message(2, role="assistant", text="", problem="it cannot be reached", backend="ollama")
    store.chat.add(failed)
    assert store.chat.messages("s")[1] == failed
    assert failed.is_wordless
    store.chat.add(message(2, role="assistant", text="Here it is.", backend="ollama"))
    assert [(each.text, each.problem) for each in store.chat.messages("s")] == [("text 1", ""), ("Here it is.", "")]


def test_what_lacks_its_records_is_known_until_they_are_there_or_it_is_forgotten(store: Store):
    put(store, "e3", "text")
    store.chat.put_session(session("s"))
    said = [message(number, role="assistant", episode_id=f"e{number}") for number in (1, 2, 3)]
    for each in said:
        store.chat.add(each)
    assert store.chat.records_due(NOW, 9) == []
    later = NOW + timedelta(minutes=5)
    for name, when in {"s-1": later, "s-2": NOW, "s-3": NOW - timedelta(minutes=1), "nothing": NOW}.items():
        store.chat.want_records(name, when)
    assert (store.chat.records_due(NOW, 9), store.chat.records_due(NOW, 1)) == (["s-3", "s-2"], ["s-3"])
    store.chat.add(replace(said[1], text="again"))
    assert store.chat.records_due(later, 9) == ["s-3", "s-2", "s-1"], "who writes a message anew takes nothing from it"
    store.chat.want_records("s-2", None)
    store.episodes.delete("e3")
    assert store.chat.records_due(later, 9) == ["s-1"]
    store.chat.forget(["s-1"])
    assert store.chat.records_due(later, 9) == []
