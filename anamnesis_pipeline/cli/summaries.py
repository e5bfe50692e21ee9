"""`anamnesis summarize`, `backfill` and `value`: summarize now or again, and explain which chunks go to an LLM."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from anamnesis_pipeline.cli.local_services import require_stored, store_to_write
from anamnesis_pipeline.errors import BadSetting, EpisodeNotFound, GiveUp, ServiceUnreachable
from anamnesis_pipeline.llm import extractive
from anamnesis_pipeline.llm.prices import expected_use, price_list
from anamnesis_pipeline.model import RESERVED_SOURCES, LlmUse, Part
from anamnesis_pipeline.parsing.claude_logs.value import EXPLANATIONS
from anamnesis_pipeline.parsing.text.wording import counted, project_name
from anamnesis_pipeline.pipeline.llm_choice import LlmChoice, length_of
from anamnesis_pipeline.pipeline.projects import project_aliases
from anamnesis_pipeline.pipeline.summarize import BY_HAND, SummaryReport
from anamnesis_pipeline.runtime import llm_wiring
from anamnesis_pipeline.runtime.up_lock import settings_in_use
from anamnesis_pipeline.search.project_labels import labels_of
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.dagster.api import open_dagster
from anamnesis_pipeline.services.dagster.runs import POSTED_JOB
from anamnesis_pipeline.services.log_ingest import JsonlControl
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import store_name

Say = Callable[[str], None]
NO_LLM = "there is no LLM to summarize with; choose one, e.g. anamnesis config set summarizer ollama"


def run_summarize(settings: Settings, say: Say, project: str | None = None, limit: int | None = None) -> None:
    """Make the summaries that are missing or stand in for an LLM's, here and now, and publish them.

    A paid LLM needs no budget for it, and what failed before is tried at once.

    :raises BadSetting: the LLM lacks a key, a URL or a model; nothing has been read.
    :raises LlmRefused: its model costs money and no price is known.
    :raises GiveUp: some were not made; what was made is stored.
    """
    with store_to_write(settings) as store:
        settings = wiring.effective_settings(store)
        llm = _llm(settings)  # opened before anything is read, so that what is missing is said first
        model = llm[0] if llm else extractive.MODEL
        label = _label(store, project)
        pipeline = wiring.open_pipeline(settings, store)
        asked_at, left, flagged = datetime.now(UTC), limit, 0
        wanted = store.summaries.sources_to_summarize(asked_at + BY_HAND)
        for source in store.files.sources():
            if source.key not in wanted or left == 0:
                continue
            report = pipeline.summarize_parts(source, by_hand=True, asked_at=asked_at, project=label, limit=left)
            pipeline.publish(source)
            if report.counts:
                say(f"{source.folder}: {report_text(report)}")
            flagged += report.counts.get("flagged", 0)
            left = None if left is None else left - report.looked_at
        if flagged:
            parts = counted(flagged, "chunk has", "chunks have")
            raise GiveUp(f"{parts} no summary by {model} yet; anamnesis doctor says what to do")
        say(f"Summaries by {model} are done." if wanted else "No part waits for a summary.")


def run_backfill(settings: Settings, say: Say, *, project: str | None, limit: int | None, dry_run: bool) -> None:
    """Ask for new summaries of what another model than the present one summarized and that an LLM would be asked about,
    newest first.

    :raises BadSetting: there is no LLM, or it lacks a key, a URL or a model; nothing has changed.
    """
    with store_to_write(settings) as store:
        settings = wiring.effective_settings(store)
        label, llm = _label(store, project), _llm(settings)
        if llm is None:
            raise BadSetting(NO_LLM)
        model, is_local = llm
        opened = llm_wiring.open_llm(settings)
        choice = LlmChoice(store, opened.rules, is_local=is_local, private_sources=opened.private_sources())
        against: Counter[str] = Counter()
        used, turns = LlmUse(), set[str]()

        def is_for_llm(part: Part) -> bool:
            nonlocal used
            reason = choice.against(part)
            against[reason] += 1
            if dry_run and not reason:
                used += expected_use([part])
                turns.add(part.exchange_id)
            return not reason

        found = store.summaries.want_summaries(model, project=label, limit=limit, dry_run=dry_run, accepts=is_for_llm)
        total = sum(found.values())
        would = "would be" if dry_run else "is to be" if total == 1 else "are to be"
        of = f"{counted(total, 'part')} of {counted(len(found), 'source')}"
        short, low, private = (against.get(reason, 0) for reason in ("short", "low value", "private"))
        left = f" {counted(short, 'more is', 'more are')} short enough (summary_min_chars)." if short else ""
        left += f" {counted(low, 'more is', 'more are')} below the threshold (summary_min_value)." if low else ""
        left += f" {counted(private, 'more is', 'more are')} private." if private else ""
        say(f"{of} {would} summarized again by {model}.{left}")
        if dry_run and found:
            say(cost_text(used, len(turns), is_local=is_local))
        if dry_run or not found:
            return
        dagster = open_dagster(settings_in_use(settings))
        control = JsonlControl(store, dagster)
        try:
            if not found.keys().isdisjoint(RESERVED_SOURCES):
                dagster.launch_job(POSTED_JOB)
            crawled = sorted(found.keys() - set(RESERVED_SOURCES))
            started = control.launch(crawled, f"Summaries of {counted(total, 'part')} by {model}")
        except ServiceUnreachable as exc:
            say(f"Dagster does it with its next tick once it runs ({exc}); here and now: anamnesis summarize")
            return
        say(f"Watch it at {started['link']}" if started["link"] else "Runs that go already do it.")


def explain_value(settings: Settings, episode_id: str) -> dict[str, Any]:
    """What an episode of a log is worth, and why.

    :raises EpisodeNotFound: no such id, or an episode that has no value since it is of no log.
    """
    with closing(wiring.open_store(settings)) as store:
        episode = store.episodes.get([episode_id]).get(episode_id)
        if episode is None or "value" not in episode.metadata:
            what = "has no value: it is no part of a log" if episode else "does not exist; anamnesis search finds ids"
            raise EpisodeNotFound(f"episode {episode_id!r} {what}")
        part, now = store.parts.part(episode_id), wiring.effective_settings(store)
        is_short = part is not None and length_of(part) < now.summary_min_chars
        value = float(episode.metadata["value"])
        return {
            "episode_id": episode.episode_id,
            "summary": episode.summary,
            "value": value,
            "signals": dict(episode.metadata.get("value_signals") or {}),
            "min_value": now.summary_min_value,
            "routine": value < now.summary_min_value,
            "short": is_short,
        }


def recompute_values(settings: Settings) -> int:
    """Compute the value of every episode of a log or document again, by the points in force. Return how many changed.

    :raises GiveUp: nothing is stored.
    """
    require_stored(settings)
    with store_to_write(settings) as store:
        pipeline = wiring.open_pipeline(wiring.effective_settings(store), store)
        changed = 0
        for source in store.files.sources():
            store.parts.renew_source(source.key)
            changed += pipeline.publish(source).put.updated
        return changed


def render_value(body: dict[str, Any]) -> str:
    """The same for people. Pure."""
    lines = [f"{body['episode_id']}  value {body['value']:g}  {body['summary'][:100]}"]
    lines += [f"  +{points:<4g} {name:<13}{EXPLANATIONS.get(name, '')}" for name, points in body["signals"].items()]
    lines += [] if body["signals"] else ["  no signal of something worth remembering"]
    verdict = "routine: not sent to an LLM, ranked lower" if body["routine"] else "worth an LLM's summary"
    if body["short"]:
        verdict += ", but so short that it is its own" if not body["routine"] else ""
    return "\n".join([*lines, f"  {verdict} (summary_min_value is {body['min_value']:g})"])


def report_text(report: SummaryReport) -> str:
    """One line on a source. Pure."""
    pieces = [f"{count:,} {name}" for name, count in report.counts.items() if count]
    if report.used.calls:
        tokens = report.used.input_tokens + report.used.output_tokens
        pieces.append(f"{report.used.calls:,} calls, {tokens:,} tokens, ${report.used.dollars:.4f}")
    return ", ".join(pieces) + (f"; {report.problem}" if report.problem else "")


def cost_text(used: LlmUse, turns: int, *, is_local: bool) -> str:
    """Say what summaries of `turns` turns will probably take, and cost at the Claude API. Pure."""
    models = ", ".join(f"{name} ${dollars:.3f}" for name, dollars in price_list(used))
    here = " The model that is set runs on this machine and costs nothing." if is_local else ""
    return (
        f"About {counted(turns, 'turn')}: {counted(used.calls, 'call')}, {used.input_tokens:,} tokens in and "
        f"{used.output_tokens:,} out. The Claude API would take, by single calls: {models}; batches are half the price."
        f"{here}"
    )


def _llm(settings: Settings) -> tuple[str, bool] | None:
    """Model of the LLM, and whether text stays on this machine with it; None: there is none."""
    opening = llm_wiring.open_llm(settings).open
    if opening is None:
        return None
    with closing(opening()) as backend:
        return backend.model, backend.is_local


def _label(store: Store, project: str | None) -> str | None:
    """The label that a bare name or an alias means.

    :raises BadSetting: it means none, or several.
    """
    if project is None:
        return None
    aliases, known = project_aliases(store), store.projects.all()
    names = [*known, *aliases]
    meant = [project] if project in names else labels_of(project, names)
    found = sorted({store_name(aliases, name) for name in meant})
    if len(found) != 1:
        these = (
            f"means {', '.join(found)}"
            if found
            else f"is not there; there are: {', '.join(map(project_name, known)) or 'none'}"
        )
        raise BadSetting(f"project {project!r} {these}")
    return found[0]
