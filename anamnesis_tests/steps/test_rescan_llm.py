"""A secret that an LLM was told before there was a rule for it is not stored by its answer after a rescan."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from anamnesis_pipeline import wiring
from anamnesis_pipeline.errors import LlmUnavailable
from anamnesis_pipeline.exchanges.redaction import Redactor
from anamnesis_pipeline.steps.llm_choice import Llm, LlmRules
from anamnesis_pipeline.steps.posting import Poster
from anamnesis_pipeline.steps.recording import Pair, Recorder
from anamnesis_pipeline.steps.rescan import Rescan, Rules
from anamnesis_pipeline.steps.summaries import summarize_source
from anamnesis_pipeline.summaries import extractive
from anamnesis_pipeline.summary_model import LlmBudget
from anamnesis_tests.steps.archived_logs import Home, record, unmasked
from anamnesis_tests.steps.llms import REPLY, BatchLlmHere, Clock, LlmHere
from anamnesis_tests.steps.test_llm_batches import later

SECRET = "ghp" + "_" + "q7Zk" * 9
TELLING = REPLY.replace("The retry double-charged.", f"It was {SECRET}.")
REDACTOR = Redactor(b"salt")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """Two exchanges that are worth an LLM, one of them with a secret that no rule knows."""
    home = Home(tmp_path)
    for n, name in enumerate((SECRET, "a key")):
        home.write(
            [
                record("user", f"Why does the push with {name} fail?", 60 * n),
                record("assistant", f"An error: {name} is old. The fix is another one.", 60 * n + 1),
            ]
        )
    home.ingest(unmasked)
    home.store.summaries.want_summaries("another")
    yield home
    home.close()


def rescan(home: Home) -> None:
    Rescan(home.store, home.archive, Rules(REDACTOR.mask_text, REDACTOR.mask_line, "1"), dry_run=False).run()


class Run:
    """Summarizes again and again, at first with a version that knows no secret."""

    def __init__(self, home: Home, backend: LlmHere) -> None:
        self.home, self.backend, self.clock = home, backend, Clock()
        rules = LlmRules(min_value=0.0, budget=LlmBudget(dollars=100.0), batch_min=2, requests_per_minute=10_000)
        self.llm = Llm(lambda: self.backend, rules, self.clock, self.clock.sleep)

    def __call__(self) -> None:
        summarize_source(self.home.store, self.home.source(), self.llm)
        wiring.open_pipeline(self.home.settings, self.home.store).publish(self.home.source())


def stored(home: Home) -> str:
    """Everything that is kept of replies, and every summary."""
    store = home.store
    parts = [part.part_id for part in store.forgetting.parts_after("", 100)]
    replies = [reply.reply for reply in store.llm.replies_after("", 100)]
    episodes = [f"{e.summary} {e.raw_exchange}" for e in home.episodes()]
    return " ".join([*replies, *(repr(store.summaries.summary(key)) for key in parts), *episodes])


def test_a_batch_that_was_open_during_a_rescan_brings_no_secret_back(home: Home) -> None:
    run = Run(home, BatchLlmHere(done=False, reply=TELLING))
    run()
    assert any(SECRET in request.text for request in run.backend.batches["batch1"])
    rescan(home)
    run.llm = replace(run.llm, mask=REDACTOR.mask_line)
    run.backend.done = True
    for _ in range(3):
        later(run)
        run()
    assert SECRET not in stored(home)
    assert home.store.summaries.summary_counts() == {"tiny": 2}, "the part of another text was asked about anew"
    assert len(home.store.llm.replies_after("", 9)) == 2
    assert "It was [" in stored(home), "what the other reply gave away is masked"


@pytest.mark.parametrize("ends", [TELLING, LlmUnavailable("broke off")], ids=["a reply", "a failure"])
def test_a_call_under_way_during_a_rescan_writes_no_secret(home: Home, ends: str | Exception) -> None:
    llm = LlmHere(concurrency=1)
    run = Run(home, llm)

    def meanwhile() -> None:
        if SECRET in llm.asked[-1].text:
            llm.on_ask = lambda: None
            rescan(home)

    llm.on_ask, llm.script = meanwhile, [REPLY] + [ends] * 3
    run()
    assert any(SECRET in request.text for request in llm.asked)
    assert SECRET not in stored(home)
    llm.script, run.clock.now = [], run.clock.now + timedelta(hours=1)
    home.store.summaries.want_summaries(llm.model)
    run()
    assert home.store.summaries.summary_counts() == {"tiny": 2}


def test_a_summary_that_stays_through_a_rescan_can_be_asked_for_anew(home: Home) -> None:
    run = Run(home, LlmHere(reply=TELLING))
    run()
    rescan(home)
    assert SECRET not in stored(home)
    home.store.summaries.want_summaries("another")
    run.llm = replace(run.llm, rules=replace(run.llm.rules, min_value=100.0))
    run()
    assert home.store.summaries.parts_to_summarize(home.source().key, run.clock(), 9) == []


def test_a_summary_that_is_masked_anew_is_still_asked_for_anew(home: Home) -> None:
    run = Run(home, LlmHere(reply=TELLING))
    run()
    home.store.summaries.want_summaries("another")
    asked_for = home.store.summaries.parts_to_summarize(home.source().key, run.clock(), 9)
    rescan(home)
    assert SECRET not in stored(home)
    left = home.store.summaries.parts_to_summarize(home.source().key, run.clock(), 9)
    assert [part.part_id for part in left] == [part.part_id for part in asked_for] != []
    run()
    assert home.store.summaries.parts_to_summarize(home.source().key, run.clock(), 9) == []


def test_a_pair_that_is_with_the_llm_during_a_rescan_gets_no_records_with_a_secret(home: Home) -> None:
    llm = LlmHere(reply=TELLING, on_ask=lambda: rescan(home))
    poster = Poster(home.store, unmasked, wiring.open_pieces(), None)
    rules = LlmRules(min_value=0.0, requests_per_minute=10_000)
    of = Recorder(home.store, poster, wiring.open_pieces(), Llm(lambda: llm, rules), extractive.summarize)
    part, _ = of.keep(Pair(f"Why does {SECRET} fail with an error?", "It is old; the fix is another.", "main", "p"))
    recorded = of.extract(part)
    assert recorded.records == ()
    assert "written anew" in recorded.problem
    assert SECRET not in stored(home)
