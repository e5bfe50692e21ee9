"""Episodes of different origin are merged by an LLM when somebody asks for it, with nothing lost and all undone."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.errors import LlmRefused
from anamnesis_pipeline.exchanges.redaction import Redactor
from anamnesis_pipeline.model import SUMMARIZER_MARK, Space, Where
from anamnesis_pipeline.steps.llm_choice import Llm, LlmRules
from anamnesis_pipeline.steps.merging import Merger, MergeReport, MergeRules, find_clusters
from anamnesis_pipeline.steps.posting import Poster
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.summaries.factory import BackendOptions, open_backend
from anamnesis_pipeline.summary_model import LlmBudget
from anamnesis_tests.steps.llms import Clock, LlmHere
from anamnesis_tests.steps.spaces import DIM, embed_all
from anamnesis_tests.store.samples import put, random_units, unit
from anamnesis_tests.summaries.ollama_server import MODEL, OllamaServer, streamed

SPACE = Space("hashing", f"hashing-{DIM}", DIM)
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
    return Merger(store, llm, minilm_pieces(), Poster(store, REDACTOR.mask_text, minilm_pieces(), None))


def outcomes(report: MergeReport) -> list[str]:
    return [proposal.outcome for proposal in report.proposals]


def visible(store: Store) -> set[str]:
    return {episode.episode_id for episode in store.episodes.page(Where(), 100).items}


def test_a_dry_run_proposes_and_asks_and_writes_nothing(memories: Store) -> None:
    backend = LlmHere(reply=reply())
    report = merger(memories, backend).run()
    assert [proposal.members for proposal in report.proposals] == [("b", "a")]
    assert (report.dry_run, report.sampled, outcomes(report)) == (True, 3, ["proposed"])
    assert backend.asked == []
    assert visible(memories) == {"a", "b", "c"}


def test_a_merge_holds_all_texts_verbatim_and_what_they_disagree_on(memories: Store) -> None:
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
    assert made is not None
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
def test_what_is_not_to_be_merged_stays_as_it_is(
    memories: Store, backend: LlmHere, rules: dict[str, Any], outcome: str
) -> None:
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


def test_what_is_forgotten_while_the_llm_thinks_is_not_brought_back(memories: Store) -> None:
    backend = LlmHere(reply=reply(), on_ask=lambda: memories.episodes.delete("a"))
    assert outcomes(merger(memories, backend).run(dry_run=False)) == ["changed"]
    assert visible(memories) == {"b", "c"}


def test_a_server_on_loopback_is_asked_and_merges(memories: Store) -> None:
    with OllamaServer().running() as server:
        server.respond(streamed(reply()))
        options = BackendOptions(model=MODEL, ollama_urls=(server.url,), timeout_s=5)
        made = merger(memories, LlmHere())
        made = Merger(memories, Llm(lambda: open_backend("ollama", options), made.llm.rules), made.pieces, made.poster)
        assert outcomes(made.run(dry_run=False)) == ["merged"]


# --- clusters --------------------------------------------------------------------------------------------


def clusters(vectors: Sequence[Any], projects: str, origins: str, **rules: Any) -> list[tuple[int, ...]]:
    return [c.rows for c in find_clusters(np.stack(vectors), projects, origins, MergeRules(**rules))]


X, NEAR, Y = unit(1, 0, 0), unit(1, 0.1, 0), unit(0, 1, 0)


def test_a_cluster_is_of_one_project_and_of_two_origins() -> None:
    assert clusters([X, NEAR, Y], "ppp", "xyz") == [(0, 1)]
    assert clusters([X, NEAR], "pq", "xy") == []
    assert clusters([X, NEAR], "pp", "xx") == []


def test_every_pair_of_a_cluster_is_near_and_no_row_is_in_two() -> None:
    left, right = unit(1, -0.5, 0), unit(1, 0.5, 0)
    assert clusters([X, left, right], "ppp", "xyz") == [(0, 1)]


def test_clusters_and_neighbours_are_bounded() -> None:
    assert clusters([X] * 7, "p" * 7, "abcdefg") == [(0, 1, 2, 3, 4), (5, 6)]
    assert clusters([X] * 4, "p" * 4, "abcd", neighbours=1) == [(0, 1), (2, 3)]
    assert clusters(list(random_units(300, 64)), "p" * 300, [str(n) for n in range(300)]) == []  # type: ignore[arg-type]
