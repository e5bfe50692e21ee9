"""What an LLM says of a text that was forgotten, or told of a secret, while it was asked is not kept."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from anamnesis_pipeline.errors import EpisodeNotFound, LlmUnavailable
from anamnesis_pipeline.parsing.redaction.masking import Redactor
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_pipeline.services.recording import Pair
from anamnesis_pipeline.services.rescan import Rescan, Rules
from anamnesis_tests.pipeline.test_llm_batches import later
from anamnesis_tests.support.archived_logs import Home, record, unmasked
from anamnesis_tests.support.llms import REPLY, BatchLlmHere, HomeRun, LlmHere, recorder

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


def forget(home: Home, *ids: str) -> None:
    wiring.open_forgetter(home.settings, home.store).forget(ForgetRequest(ids=ids))


def parts(home: Home) -> list[str]:
    """Ids of the parts, in the order they were said."""
    found = home.store.forgetting.parts_after("", 100)
    return [part.part_id for part in sorted(found, key=lambda part: part.ordinal)]


def replies(home: Home) -> set[str]:
    return {reply.key for reply in home.store.llm.replies_after("", 100)}


def test_an_open_batch_writes_nothing_of_a_forgotten_text(home: Home) -> None:
    llm = BatchLlmHere(done=False, reply=TELLING)
    run = HomeRun(home, llm)
    home.store.summaries.want_summaries("another")
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


def test_a_call_under_way_writes_nothing_of_a_forgotten_text(home: Home) -> None:
    first, second, *_ = parts(home)
    told: list[str] = []

    def on_ask() -> None:
        if not told:
            told.append(first)
            forget(home, first)

    llm = LlmHere(reply=TELLING, concurrency=1, on_ask=on_ask)
    home.store.summaries.want_summaries("another")
    HomeRun(home, llm)()
    about = [request for request in llm.asked if PROMPT[:20] in request.text]
    assert about, "it was asked before it was forgotten"
    assert not replies(home) & {request.key for request in about}
    assert home.store.summaries.summary(first) is None
    assert PROMPT.encode() not in home.bytes()
    llm.reply = REPLY
    home.store.summaries.want_summaries("another")
    HomeRun(home, llm)()
    summary = home.store.summaries.summary(second)
    assert summary
    assert (summary.model, summary.text.split()[0]) == (llm.model, "The")
    assert "okapi" not in summary.text


def test_a_run_asks_nobody_about_a_text_forgotten_meanwhile(home: Home) -> None:
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


def test_a_posted_pair_goes_with_its_records_and_their_reply(home: Home, pair: Pair) -> None:
    llm = LlmHere(reply=REPLY.replace("Retries charged twice.", "The ibex was at fault."))
    of = recorder(home, llm)
    part, created = of.keep(pair)
    (found,) = of.extract(part).records
    assert (created, len(replies(home))) == (True, 1)
    forget(home, found.episode_id)
    assert home.store.episodes.get([part.part_id, found.episode_id]) == {}
    assert replies(home) == set()
    assert [word for word in (b"quagga", b"ibex") if word in home.bytes()] == []


def test_a_pair_forgotten_while_the_llm_is_asked_gets_no_records(home: Home, pair: Pair) -> None:
    llm = LlmHere(reply=REPLY.replace("Retries charged twice.", "The ibex was at fault."))
    of = recorder(home, llm)
    part, _ = of.keep(pair)
    llm.on_ask = lambda: forget(home, part.part_id)
    with pytest.raises(EpisodeNotFound, match="deleted meanwhile"):
        of.extract(part)
    assert replies(home) == set()
    assert [word for word in (b"quagga", b"ibex") if word in home.bytes()] == []


# --- secrets that an LLM was told before there was a rule for them ----------------------------------------


SECRET = "ghp" + "_" + "q7Zk" * 9
GIVING_AWAY = REPLY.replace("The retry double-charged.", f"It was {SECRET}.")
REDACTOR = Redactor(b"salt")


@pytest.fixture
def told_home(tmp_path: Path) -> Iterator[Home]:
    """Two exchanges that are worth an LLM, one of them with a secret that no rule knows."""
    told_home = Home(tmp_path)
    for n, name in enumerate((SECRET, "a key")):
        told_home.write([record("user", f"Why does the push with {name} fail?", 60 * n)])
        told_home.write([record("assistant", f"An error: {name} is old. The fix is another one.", 60 * n + 1)])
    told_home.ingest(unmasked)
    told_home.store.summaries.want_summaries("another")
    yield told_home
    told_home.close()


def rescan(told_home: Home) -> None:
    Rescan(told_home.store, told_home.archive, Rules(REDACTOR.mask_text, REDACTOR.mask_line, "1"), dry_run=False).run()


def stored(told_home: Home) -> str:
    """Everything that is kept of replies, and every summary."""
    store = told_home.store
    parts = [part.part_id for part in store.forgetting.parts_after("", 100)]
    replies = [reply.reply for reply in store.llm.replies_after("", 100)]
    episodes = [f"{e.summary} {e.raw_exchange}" for e in told_home.episodes()]
    return " ".join([*replies, *(repr(store.summaries.summary(key)) for key in parts), *episodes])


def test_a_batch_open_during_a_rescan_brings_no_secret_back(told_home: Home) -> None:
    run = HomeRun(told_home, BatchLlmHere(done=False, reply=GIVING_AWAY))
    run()
    assert any(SECRET in request.text for request in run.backend.batches["batch1"])
    rescan(told_home)
    run.llm = replace(run.llm, mask=REDACTOR.mask_line)
    run.backend.done = True
    for _ in range(3):
        later(run)
        run()
    assert SECRET not in stored(told_home)
    assert told_home.store.summaries.summary_counts() == {"tiny": 2}, "the part of another text was asked about anew"
    assert len(told_home.store.llm.replies_after("", 9)) == 2
    assert "It was [" in stored(told_home), "what the other reply gave away is masked"


@pytest.mark.parametrize("ends", [GIVING_AWAY, LlmUnavailable("broke off")], ids=["a reply", "a failure"])
def test_a_call_under_way_during_a_rescan_writes_no_secret(told_home: Home, ends: str | Exception) -> None:
    llm = LlmHere(concurrency=1)
    run = HomeRun(told_home, llm)

    def meanwhile() -> None:
        if SECRET in llm.asked[-1].text:
            llm.on_ask = lambda: None
            rescan(told_home)

    llm.on_ask, llm.script = meanwhile, [REPLY] + [ends] * 3
    run()
    assert any(SECRET in request.text for request in llm.asked)
    assert SECRET not in stored(told_home)
    llm.script, run.clock.now = [], run.clock.now + timedelta(hours=1)
    told_home.store.summaries.want_summaries(llm.model)
    run()
    assert told_home.store.summaries.summary_counts() == {"tiny": 2}


def test_a_summary_left_by_a_rescan_can_be_asked_for_anew(told_home: Home) -> None:
    run = HomeRun(told_home, LlmHere(reply=GIVING_AWAY))
    run()
    rescan(told_home)
    assert SECRET not in stored(told_home)
    told_home.store.summaries.want_summaries("another")
    run.llm = replace(run.llm, rules=replace(run.llm.rules, min_value=100.0))
    run()
    assert told_home.store.summaries.parts_to_summarize(told_home.source().key, run.clock(), 9) == []


def test_a_summary_that_is_masked_anew_is_still_asked_for_anew(told_home: Home) -> None:
    run = HomeRun(told_home, LlmHere(reply=GIVING_AWAY))
    run()
    told_home.store.summaries.want_summaries("another")
    asked_for = told_home.store.summaries.parts_to_summarize(told_home.source().key, run.clock(), 9)
    rescan(told_home)
    assert SECRET not in stored(told_home)
    left = told_home.store.summaries.parts_to_summarize(told_home.source().key, run.clock(), 9)
    assert [part.part_id for part in left] == [part.part_id for part in asked_for] != []
    run()
    assert told_home.store.summaries.parts_to_summarize(told_home.source().key, run.clock(), 9) == []


def test_a_pair_asked_about_during_a_rescan_gets_no_secret(told_home: Home) -> None:
    llm = LlmHere(reply=GIVING_AWAY, on_ask=lambda: rescan(told_home))
    of = recorder(told_home, llm)
    part, _ = of.keep(Pair(f"Why does {SECRET} fail with an error?", "It is old; the fix is another.", "main", "p"))
    recorded = of.extract(part)
    assert recorded.records == ()
    assert "rewritten" in recorded.problem
    assert SECRET not in stored(told_home)
