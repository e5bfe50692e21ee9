"""What an LLM says of a text that was forgotten while it was asked is not kept."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from anamnesis_pipeline import wiring
from anamnesis_pipeline.errors import EpisodeNotFound
from anamnesis_pipeline.steps.forget_target import ForgetRequest
from anamnesis_pipeline.steps.llm_choice import Llm, LlmRules
from anamnesis_pipeline.steps.posting import Poster
from anamnesis_pipeline.steps.recording import Pair, Recorder
from anamnesis_pipeline.steps.summaries import SummaryReport, summarize_source
from anamnesis_pipeline.summaries import extractive
from anamnesis_pipeline.summary_model import LlmBudget
from anamnesis_tests.steps.archived_logs import Home, record, unmasked
from anamnesis_tests.steps.llms import REPLY, BatchLlmHere, Clock, LlmHere

PROMPT = "Why does the zanzibar exporter fail? It is an error, and the bug was there before."
LONG = "The okapi buffer is the cause. " + "Then more was said about numbers and rows. " * 40
TELLING = REPLY.replace("The retry double-charged.", "The zanzibar okapi was at fault.")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """An exchange of several parts, each carrying the prompt, and another one."""
    home = Home(tmp_path)
    home.write([record("user", PROMPT, 1)])
    for n in range(2):
        home.write([record("assistant", f"{LONG} part {n} found the error.", 2 + 2 * n)])
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": "done " * 500}
        home.write([record("user", "", 3 + 2 * n, message={"role": "user", "content": [result]})])
    home.write([record("user", "And why does the walrus fail with an error?", 90)])
    home.write([record("assistant", "An error in the walrus; the fix is a test.", 91)])
    home.ingest(unmasked)
    yield home
    home.close()


class Run:
    """Summarizes again and again with one LLM."""

    def __init__(self, home: Home, backend: LlmHere) -> None:
        self.home, self.backend, self.clock = home, backend, Clock()
        rules = LlmRules(min_value=0.0, budget=LlmBudget(dollars=100.0), batch_min=2, requests_per_minute=10_000)
        self.llm = Llm(lambda: self.backend, rules, self.clock, self.clock.sleep)
        home.store.summaries.want_summaries("another")

    def __call__(self) -> SummaryReport:
        report = summarize_source(self.home.store, self.home.source(), self.llm)
        wiring.open_pipeline(self.home.settings, self.home.store).publish(self.home.source())
        return report


def forget(home: Home, *ids: str) -> None:
    wiring.open_forgetter(home.settings, home.store).forget(ForgetRequest(ids=ids))


def parts(home: Home) -> list[str]:
    """Ids of the parts, in the order they were said."""
    found = home.store.forgetting.parts_after("", 100)
    return [part.part_id for part in sorted(found, key=lambda part: part.ordinal)]


def replies(home: Home) -> set[str]:
    return {reply.key for reply in home.store.llm.replies_after("", 100)}


def test_a_batch_that_is_open_when_its_text_is_forgotten_writes_nothing_of_it(home: Home) -> None:
    llm = BatchLlmHere(done=False, reply=TELLING)
    run = Run(home, llm)
    first, second, *_, last = parts(home)
    assert run().counts["in a batch"] == len(parts(home))
    asked = {request.key: request.text for request in llm.batches["batch1"]}
    forget(home, first)
    llm.done = True
    run.clock.now += timedelta(minutes=11)
    run()
    assert replies(home) & asked.keys() == {key for key, text in asked.items() if "zanzibar" not in text}
    summaries = {part_id: home.store.summaries.summary(part_id) for part_id in parts(home)}
    assert summaries[last]
    assert summaries[last].model == llm.model
    assert summaries[second]
    assert "okapi" not in summaries[second].text, "it was asked for with the forgotten prompt"
    assert llm.batches["batch2"]
    assert not any("zanzibar" in request.text for request in llm.batches["batch2"])
    assert PROMPT.encode() not in home.bytes()


def test_a_call_under_way_when_its_text_is_forgotten_writes_nothing_of_it(home: Home) -> None:
    first, second, *_ = parts(home)
    told: list[str] = []

    def on_ask() -> None:
        if not told:
            told.append(first)
            forget(home, first)

    llm = LlmHere(reply=TELLING, concurrency=1, on_ask=on_ask)
    Run(home, llm)()
    about = [request for request in llm.asked if PROMPT[:20] in request.text]
    assert about, "it was asked before it was forgotten"
    assert not replies(home) & {request.key for request in about}
    assert home.store.summaries.summary(first) is None
    assert PROMPT.encode() not in home.bytes()
    llm.reply = REPLY
    Run(home, llm)()
    summary = home.store.summaries.summary(second)
    assert summary
    assert (summary.model, summary.text.split()[0]) == (llm.model, "The")
    assert "okapi" not in summary.text


def test_a_run_that_read_a_text_before_it_was_forgotten_asks_nobody_about_it(home: Home) -> None:
    first, *_ = parts(home)
    (held,) = home.store.forgetting.parts([first])
    neighbours = [p for p in home.store.forgetting.parts_after("", 100) if p.prompt == held.prompt and p != held]
    forget(home, first)
    asked = {part.part_id: part for part in (held, *neighbours)}
    assert home.store.llm.note_asked(asked) == set()
    (fresh,) = home.store.forgetting.parts([neighbours[0].part_id])
    assert home.store.llm.note_asked({"k": fresh}) == {"k"}


@pytest.fixture
def pair() -> Pair:
    return Pair("Why does the quagga fail with an error?", "The bug was in the ibex; the fix is a test.", "main", "p")


def recorder(home: Home, llm: LlmHere) -> Recorder:
    poster = Poster(home.store, unmasked, wiring.open_pieces(), None)
    rules = LlmRules(min_value=0.0, requests_per_minute=10_000)
    return Recorder(home.store, poster, wiring.open_pieces(), Llm(lambda: llm, rules), extractive.summarize)


def test_a_posted_pair_goes_with_its_records_and_the_reply_they_came_from(home: Home, pair: Pair) -> None:
    llm = LlmHere(reply=REPLY.replace("Retries charged twice.", "The ibex was at fault."))
    of = recorder(home, llm)
    part, created = of.keep(pair)
    (found,) = of.extract(part).records
    assert (created, len(replies(home))) == (True, 1)
    forget(home, found.episode_id)
    assert home.store.episodes.get([part.part_id, found.episode_id]) == {}
    assert replies(home) == set()
    assert [word for word in (b"quagga", b"ibex") if word in home.bytes()] == []


def test_a_pair_that_is_forgotten_while_the_llm_is_asked_gets_no_records(home: Home, pair: Pair) -> None:
    llm = LlmHere(reply=REPLY.replace("Retries charged twice.", "The ibex was at fault."))
    of = recorder(home, llm)
    part, _ = of.keep(pair)
    llm.on_ask = lambda: forget(home, part.part_id)
    with pytest.raises(EpisodeNotFound, match="deleted meanwhile"):
        of.extract(part)
    assert replies(home) == set()
    assert [word for word in (b"quagga", b"ibex") if word in home.bytes()] == []
