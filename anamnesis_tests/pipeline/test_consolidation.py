"""Sessions are consolidated, and episodes of different origin merged by an LLM when somebody asks for it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.errors import LlmRefused
from anamnesis_pipeline.model import SUMMARIZER_MARK, EpisodeFilter, LlmBudget, Source, Space
from anamnesis_pipeline.parsing.redaction.masking import Redactor
from anamnesis_pipeline.pipeline import consolidation
from anamnesis_pipeline.pipeline.consolidation import (
    LAST_RUN,
    ConsolidationReport,
    Spoken,
    consolidate_sessions,
    newest_of_equals,
)
from anamnesis_pipeline.pipeline.llm_choice import Llm, LlmRules
from anamnesis_pipeline.services.merging import Merger, MergeReport, MergeRules, find_clusters
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.conftest import OpenStore
from anamnesis_tests.support.llms import Clock, LlmHere
from anamnesis_tests.support.samples import edit, put, random_units, unit
from anamnesis_tests.support.spaces import DIM, embed_all

SPACE = Space("hashing", f"hashing-{DIM}", DIM)
LOGS = Source("mac--api--00000000", "mac", "/logs", "api")
FIRST = "user: why does the webhook charge twice?"
GROWN = f"{FIRST} claude: the retry sends no key."
WHOLE = f"{GROWN} claude: fixed in billing/retry.py, 14 tests pass."
OTHER = "user: and write a release note for the billing team, please"


@pytest.fixture
def logs(store: Store) -> Store:
    store.spaces.put(SPACE)
    store.spaces.activate(SPACE.key)
    store.files.put_sources([LOGS])
    return store


def say(store: Store, *texts: str, session: str = "s", source: str = LOGS.key, first: int = 0) -> list[str]:
    """Episodes of a session, one passage for each sentence of a speaker; embedded."""
    names = [f"{session}-{source}-{first + n}" for n in range(len(texts))]
    for minute, (name, text) in enumerate(zip(names, texts, strict=True), first):
        said = text.replace(" claude:", "|claude:").split("|")
        put(store, name, *said, minute=minute, source=source, session_id=session, raw_exchange=text)
    embed_all(store, SPACE, [source])
    return names


def run(store: Store) -> ConsolidationReport:
    return consolidate_sessions(store, 0.95)


def visible(store: Store) -> set[str]:
    return {episode.episode_id for episode in store.episodes.page(EpisodeFilter(), 100).items}


def test_snapshots_of_one_exchange_collapse_to_the_newest(logs: Store) -> None:
    first, grown, other, whole = say(logs, FIRST, GROWN, OTHER, WHOLE)
    report = run(logs)
    assert (report.sessions, report.episodes, report.superseded, report.waiting) == (1, 4, 2, 0)
    assert visible(logs) == {other, whole}
    hidden = logs.episodes.get([first, grown])
    assert {episode.superseded_by for episode in hidden.values()} == {whole}
    assert all(episode.superseded_at for episode in hidden.values())
    assert logs.settings.get(LAST_RUN)["superseded"] == 2


def test_the_same_in_another_session_or_by_a_client_stays(logs: Store) -> None:
    say(logs, FIRST)
    say(logs, FIRST, session="another")
    say(logs, FIRST, FIRST, source="direct")
    assert run(logs).superseded == 0


def test_a_run_costs_what_changed_and_a_second_one_nothing(logs: Store, open_store: OpenStore) -> None:
    say(logs, FIRST, GROWN)
    say(logs, OTHER, session="another")
    assert run(logs).sessions == 2
    assert (run(open_store()).sessions, run(logs).episodes) == (0, 0)
    anew = consolidate_sessions(logs, 0.9)
    assert (anew.sessions, anew.superseded, anew.revived) == (2, 0, 0), "another threshold looks at all"
    (new,) = say(logs, WHOLE, first=5)
    again = consolidate_sessions(logs, 0.9)
    assert (again.sessions, again.superseded) == (1, 2)  # the one behind GROWN is behind the new one, too
    assert new in visible(logs)


def test_what_says_something_of_its_own_again_comes_back(logs: Store) -> None:
    first, _ = say(logs, FIRST, WHOLE)
    run(logs)
    put(logs, first, FIRST, "a thought of its own", source=LOGS.key, session_id="s", raw_exchange=f"{FIRST} a thought")
    assert first not in visible(logs)  # until it is looked at
    embed_all(logs, SPACE, [LOGS.key])
    assert run(logs).revived == 1
    assert first in visible(logs)


def test_without_a_space_nothing_is_done_and_it_says_so(store: Store) -> None:
    put(store, "a", "text", source=LOGS.key, session_id="s")
    report = run(store)
    assert (report.waiting, report.superseded) == (1, 0)
    assert "no space" in report.problem


def test_a_dead_run_leaves_the_rest_to_the_next(
    logs: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for session in "abc":
        say(logs, FIRST, WHOLE, session=session)
    settle, calls = logs.consolidation.settle, []

    def dying(session: object, canonical_of: object) -> object:
        calls.append(session)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return settle(session, canonical_of)  # type: ignore[arg-type]

    monkeypatch.setattr(logs.consolidation, "settle", dying)
    with pytest.raises(KeyboardInterrupt):
        run(logs)
    report = run(open_store())
    assert (report.sessions, report.superseded) == (2, 2)


def test_a_long_session_is_compared_in_groups(logs: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consolidation, "MAX_GROUP", 2)
    names = say(logs, FIRST, WHOLE, FIRST, WHOLE)
    assert run(logs).superseded == 2
    assert visible(logs) == {names[1], names[3]}


# --- the rule --------------------------------------------------------------------------------------------


def spoken(name: str, words: str, *vectors: np.ndarray, kind: str = "exchange") -> Spoken:
    return Spoken(name, kind, frozenset(words.split()), np.stack(vectors))


NEAR, FAR = unit(1, 0.1, 0), unit(1, 1, 0)
X, Y = unit(1, 0, 0), unit(0, 0, 1)


@pytest.mark.parametrize(
    ("newer", "same"),
    [
        (spoken("b", "retries 3 now", X), True),
        (spoken("b", "retries 3 now", NEAR, Y), True),
        (spoken("b", "retries 3 now", FAR), False),
        (spoken("b", "retries 5 now", X), False),
        (spoken("b", "retries 3", X, kind="record"), False),
    ],
    ids=["the same", "more", "far away", "another number", "another kind"],
)
def test_an_episode_is_the_same_as_a_later_one_that_says_it_all(newer: Spoken, same: bool) -> None:
    found = newest_of_equals([spoken("a", "retries 3", X), newer], 0.95)
    assert found == {"a": "b" if same else None, "b": None}
    assert newest_of_equals([spoken("a", "retries 3", X, Y), spoken("b", "retries 3", X)], 0.95)["a"] is None


def test_the_newest_stands_for_all_of_a_chain() -> None:
    chain = [spoken(name, "w", X) for name in "abcd"]
    assert newest_of_equals(chain, 0.95) == {"a": "d", "b": "d", "c": "d", "d": None}


def test_five_hundred_episodes_that_differ_all_stay() -> None:
    vectors = random_units(500, 64)
    episodes = [Spoken(str(n), "exchange", frozenset({"w"}), vectors[n : n + 1]) for n in range(500)]
    assert set(newest_of_equals(episodes, 0.95).values()) == {None}


# --- merging by an LLM ------------------------------------------------------------------------------------


SAID = "the webhook retries charge twice since no idempotency key is sent"
REDACTOR = Redactor(b"0123456789abcdef")


def reply(**fields: Any) -> str:
    record = {"type": "fact", "text": "In March 3 retries, in April 5.", "why": "", "messages": [1, 2]}
    said = {"skip": False, "summary": "Webhook retries charged twice.", "tags": ["billing"], "records": [record]}
    return json.dumps(said | fields)


@pytest.fixture
def memories(store: Store) -> Store:
    """Two of different sessions that tell of the same, and one of something else."""
    store.spaces.put(SPACE)
    store.spaces.activate(SPACE.key)
    tell(store, "a", f"{SAID} 3", session_id="one", tags=("retry",))
    tell(store, "b", f"{SAID} 5", minute=60, tags=("money",))
    tell(store, "c", "a release note for the team in Lisbon", minute=90)
    return store


def tell(store: Store, name: str, text: str, minute: float = 0, **fields: Any) -> None:
    put(store, name, text, minute=minute, raw_exchange=text, **fields)
    embed_all(store, SPACE)


def merger(store: Store, backend: LlmHere, **rules: Any) -> Merger:
    clock = Clock()
    llm = Llm(lambda: backend, LlmRules(requests_per_minute=10_000, **rules), clock, clock.sleep, REDACTOR.mask_text)
    return Merger(store, llm, minilm_pieces(), EpisodeWriter(store, REDACTOR.mask_text, minilm_pieces(), None))


def outcomes(report: MergeReport) -> list[str]:
    return [proposal.outcome for proposal in report.proposals]


def test_a_dry_run_proposes_and_asks_and_writes_nothing(memories: Store) -> None:
    backend = LlmHere(reply=reply())
    report = merger(memories, backend).run()
    assert [proposal.members for proposal in report.proposals] == [("b", "a")]
    assert (report.dry_run, report.sampled, outcomes(report)) == (True, 3, ["proposed"])
    assert backend.asked == []
    assert visible(memories) == {"a", "b", "c"}


def test_a_merge_holds_all_texts_and_what_they_disagree_on(memories: Store) -> None:
    report = merger(memories, LlmHere(reply=reply())).run(dry_run=False)
    (proposal,) = report.proposals
    assert proposal.outcome == "merged"
    assert proposal.merged_into is not None
    merged = memories.episodes.get([proposal.merged_into])[proposal.merged_into]
    assert f"{SAID} 3" in merged.raw_exchange
    assert f"{SAID} 5" in merged.raw_exchange
    assert merged.metadata["consolidated_from"] == ["a", "b"]
    assert merged.metadata["disagreements"] == ["In March 3 retries, in April 5."]
    assert merged.tags == ("retry", "money", "billing")
    assert visible(memories) == {"c", merged.episode_id}


def test_a_merge_is_undone_as_a_whole_and_not_proposed_again(memories: Store) -> None:
    backend = LlmHere(reply=reply())
    made = merger(memories, backend).run(dry_run=False).proposals[0].merged_into
    undone = memories.consolidation.unsupersede(made)
    assert (undone.restored, undone.retired) == (("a", "b"), made)
    assert visible(memories) == {"a", "b", "c"}
    assert merger(memories, backend).run().proposals == ()


@pytest.mark.parametrize(
    ("backend", "rules", "outcome"),
    [
        (LlmHere(reply=reply(skip=True, summary="", records=[])), {}, "not the same"),
        (LlmHere(reply="I cannot"), {}, "no answer"),
        (LlmHere(script=[LlmRefused("no key")]), {}, "no answer"),
        (LlmHere(is_local=False, reply=reply()), {"private_projects": ("acme/api",)}, "private"),
        (LlmHere(is_local=False, reply=reply()), {"local_only": True}, "private"),
        (LlmHere(is_paid=True, reply=reply()), {"budget": LlmBudget(dollars=0.001)}, "no answer"),
    ],
    ids=["two matters", "no JSON", "refused", "private project", "local only", "no budget"],
)
def test_what_is_not_to_be_merged_stays(memories: Store, backend: LlmHere, rules: dict[str, Any], outcome: str) -> None:
    report = merger(memories, backend, **rules).run(dry_run=False)
    assert outcomes(report) == [outcome]
    assert visible(memories) == {"a", "b", "c"}
    if outcome == "private":
        assert backend.asked == []


def test_a_private_project_may_be_merged_by_an_llm_here(memories: Store) -> None:
    report = merger(memories, LlmHere(reply=reply()), private_projects=("acme/api",)).run(dry_run=False)
    assert outcomes(report) == ["merged"]


def test_what_a_private_source_holds_is_merged_by_nobody(memories: Store) -> None:
    backend = LlmHere(reply=reply())
    plain = merger(memories, backend)
    source = memories.episodes.get(["a"])["a"].source
    private = replace(plain, llm=replace(plain.llm, private_sources=lambda: frozenset({source})))
    assert outcomes(private.run(dry_run=False)) == ["private"], "what is merged would be of no private source"
    assert backend.asked == []


def test_no_secret_goes_out_and_none_that_comes_back_is_stored(memories: Store) -> None:
    secret = "ghp_" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"
    tell(memories, "d", f"{SAID} 3 with token {secret}", minute=120, session_id="two")
    backend = LlmHere(reply=reply(summary=f"It uses {secret}."))
    report = merger(memories, backend).run(dry_run=False)
    assert outcomes(report) == ["merged"]
    assert all(secret not in request.text for request in backend.asked)
    made = report.proposals[0].merged_into or ""
    assert secret not in memories.episodes.get([made])[made].summary


def test_the_prompt_is_bounded_and_marked_as_ours(memories: Store) -> None:
    for number in range(4):
        tell(memories, f"long{number}", f"{SAID} " * 160, minute=200 + number, session_id=f"s{number}")
    backend = LlmHere(reply=reply())
    merger(memories, backend).run(dry_run=False)
    assert backend.asked
    for request in backend.asked:
        assert request.text.startswith(SUMMARIZER_MARK)
        assert len(request.text) <= 12_000


def test_what_would_not_fit_is_not_merged(memories: Store) -> None:
    tell(memories, "long", f"{SAID} 3 " * 900, minute=200, session_id="two")
    report = merger(memories, LlmHere(reply=reply())).run(dry_run=False)
    assert outcomes(report) == ["too long"]


def test_who_dies_after_the_reply_asks_nobody_again(memories: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = LlmHere(reply=reply())

    def dying(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(memories.consolidation, "merge", dying)
        with pytest.raises(KeyboardInterrupt):
            merger(memories, backend).run(dry_run=False)
    assert visible(memories) == {"a", "b", "c"}
    assert outcomes(merger(memories, backend).run(dry_run=False)) == ["merged"]
    assert len(backend.asked) == 1


def test_what_is_forgotten_meanwhile_is_not_brought_back(memories: Store) -> None:
    backend = LlmHere(reply=reply(), on_ask=lambda: memories.episodes.delete("a"))
    assert outcomes(merger(memories, backend).run(dry_run=False)) == ["changed"]
    assert visible(memories) == {"b", "c"}


# --- clusters --------------------------------------------------------------------------------------------


def clusters(vectors: Sequence[Any], projects: str, origins: str, **rules: Any) -> list[tuple[int, ...]]:
    return [c.rows for c in find_clusters(np.stack(vectors), projects, origins, MergeRules(**rules))]


NORTH, NORTHISH, EAST = unit(1, 0, 0), unit(1, 0.1, 0), unit(0, 1, 0)


def test_a_cluster_is_of_one_project_and_of_two_origins() -> None:
    assert clusters([NORTH, NORTHISH, EAST], "ppp", "xyz") == [(0, 1)]
    assert clusters([NORTH, NORTHISH], "pq", "xy") == []
    assert clusters([NORTH, NORTHISH], "pp", "xx") == []


def test_every_pair_of_a_cluster_is_near_and_no_row_is_in_two() -> None:
    left, right = unit(1, -0.5, 0), unit(1, 0.5, 0)
    assert clusters([NORTH, left, right], "ppp", "xyz") == [(0, 1)]


def test_clusters_and_neighbours_are_bounded() -> None:
    assert clusters([NORTH] * 7, "p" * 7, "abcdefg") == [(0, 1, 2, 3, 4), (5, 6)]
    assert clusters([NORTH] * 4, "p" * 4, "abcd", neighbours=1) == [(0, 1), (2, 3)]
    assert clusters(list(random_units(300, 64)), "p" * 300, [str(n) for n in range(300)]) == []  # type: ignore[arg-type]


def test_pinned_episode_is_not_superseded_by_a_run(logs: Store) -> None:
    first, grown, whole = say(logs, FIRST, GROWN, WHOLE)
    edit(logs, first, tags=("pinned",))
    run(logs)
    assert visible(logs) == {first, whole}
    assert logs.episodes.get([grown])[grown].superseded_by == whole
    edit(logs, grown, tags=("pinned",))
    run(logs)
    assert visible(logs) == {first, grown, whole}
