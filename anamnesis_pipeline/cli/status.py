"""`anamnesis status`: what the memory holds, and what is running."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, tzinfo
from typing import Any

from anamnesis_pipeline.cli import reembed
from anamnesis_pipeline.cli.local_services import SAME_STORE, other_store, sidecar_status
from anamnesis_pipeline.cli.sources import source_state
from anamnesis_pipeline.errors import RetryLater, ServiceUnreachable
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.parsing.text.wording import counted, local_time, one_line
from anamnesis_pipeline.runtime.advice import START_STOPPED
from anamnesis_pipeline.runtime.dagster_home import dagster_url
from anamnesis_pipeline.runtime.home_wiring import home_problem
from anamnesis_pipeline.runtime.up_lock import log_roots_in_use, settings_in_use
from anamnesis_pipeline.services.counting import SHOWN, counts_body
from anamnesis_pipeline.services.crawler_control import CrawlerControl, crawled_out, host_out
from anamnesis_pipeline.services.dagster.state import dagster_state, stopped_text
from anamnesis_pipeline.services.embedding_control import EmbeddingControl
from anamnesis_pipeline.services.log_ingest import llm_state
from anamnesis_pipeline.services.model_health import model_problems, reembed_notes, reembed_problems
from anamnesis_pipeline.services.proposals import waiting_of
from anamnesis_pipeline.services.reminder import knowledge_body, waiting_text
from anamnesis_pipeline.services.wiring import (
    default_model_note,
    effective_settings,
    impatient,
    open_to_read,
    store_place,
    what_is_private,
)
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.specs import DOCUMENTS
from anamnesis_pipeline.store.base import Store

VALUES_SHOWN = 8
"""Values of a grouping in the text; `--json` has all."""
_GROUPS = {"layer": "Layers", "kind": "Kinds", "type": "Types", "project": "Projects", "month": "Months"}
DIAGNOSED_WITHIN_S = 5
"""Who asks what is wrong does not wait until a server is back."""


def gather_status(settings: Settings) -> dict[str, Any]:
    """Everything, JSON-ready. `memory` is None while nothing has been stored, or when the store cannot be opened, which
    is its `problem` then; `home_problem` says why the home cannot be used. Times are ISO 8601 UTC.
    """
    memory, problem = None, None
    if settings.has_store:
        try:
            with closing(open_to_read(impatient(settings, DIAGNOSED_WITHIN_S))) as store:
                current = effective_settings(store).model_copy(update={"log_roots": log_roots_in_use(settings)})
                state = CrawlerControl(store, current).state()
                memory = memory_status(store)
                memory["llm"] = llm_state(store, current, datetime.now(UTC))
                memory["crawler"] = {
                    "hosts": [host_out(host) for host in state.hosts],
                    "sources": [crawled_out(row) for row in state.sources],
                    "retired": list(state.retired),
                }
        except RetryLater as exc:
            problem = str(exc)
    sidecar = sidecar_status(settings)
    return {
        "home": str(settings.home),
        "home_problem": home_problem(settings.home) or None,
        "store": {"place": store_place(settings), "problem": problem},
        "memory": memory,
        "sidecar": sidecar,
        "other_store": other_store(settings, sidecar),
        "dagster": dagster_status(settings),
    }


def memory_status(store: Store) -> dict[str, Any]:
    """Counts, sources, spaces, the re-embed. `coverage` is the embedded share of passages in the active space.

    `problems` are those of models and the re-embed that need action, `notes` optional actions.
    """
    counts, control = store.overview.counts(), EmbeddingControl(store)
    spaces, state = control.list_spaces(), control.reembed_status()
    active = next((space["embedded"] for space in spaces if space["status"] == "active"), 0)
    newest = store.episodes.page(EpisodeFilter(), 1).items
    private, now = what_is_private(store), datetime.now(UTC)
    return {
        "counts": asdict(counts),
        "by": {name: counts_body(store, private, name, now) for name in SHOWN},
        "summaries": store.summaries.summary_counts(),
        "coverage": active / counts.passages if counts.passages else 1.0,
        "knowledge": knowledge_body(waiting_of(store, what_is_private(store)), datetime.now(UTC)),
        "newest_episode": newest[0].timestamp.isoformat() if newest else None,
        "spaces": spaces,
        "reembed": state,
        "notes": [*reembed_notes(state), *filter(None, [default_model_note(store)])],
        "problems": [asdict(problem) for problem in [*reembed_problems(state), *model_problems(store)]],
        "sources": [
            {"key": s.key, "kind": s.kind, "folder": s.folder, **asdict(store.overview.counts(s.key))}
            for s in store.files.log_sources()
        ],
    }


def dagster_status(settings: Settings) -> dict[str, Any]:
    """Return whether Dagster answers, its daemons, unfinished runs, the end of the last successful ingest, and sensors
    and schedules that should run and are stopped.
    """
    url = dagster_url(settings_in_use(settings))
    try:
        state = dagster_state(settings)
    except ServiceUnreachable as exc:
        return {"url": url, "reachable": False, "problem": str(exc)}
    return {
        "url": url,
        "reachable": True,
        "daemons": dict(state.daemons),
        "unfinished_runs": len(state.unfinished),
        "last_ingest": state.last_ingest.isoformat() if state.last_ingest else None,
        "stopped": list(state.stopped),
    }


def render(status: Mapping[str, Any], zone: tzinfo | None = None) -> str:
    """Render the status. Pure."""
    store, sidecar, dagster = status["store"], status["sidecar"], status["dagster"]
    lines = [f"Home      {status['home']}", f"Store     {store['place']}"]
    lines += [f"Problem   {status['home_problem']}"] if status["home_problem"] else []
    lines += [f"Problem   {store['problem']}"] if store["problem"] else _memory_lines(status["memory"], zone)
    lines += [f"Problem   {status['other_store']}\n-> {SAME_STORE}"] if status["other_store"] else []
    state = "ready" if sidecar["ready"] else "; ".join(sidecar["missing"]) or "not ready"
    lines.append(f"Sidecar   {sidecar['url']}  {state}")
    if not dagster["reachable"]:
        return "\n".join([*lines, f"Dagster   {dagster['url']}  {dagster['problem']}"])
    ill = [name for name, healthy in dagster["daemons"].items() if not healthy]
    daemons = f"daemons without a heartbeat: {', '.join(ill)}" if ill else "daemons alive"
    lines.append(f"Dagster   {dagster['url']}  {daemons}, {counted(dagster['unfinished_runs'], 'unfinished run')}")
    if dagster["stopped"]:
        lines.append(f"Problem   {stopped_text(dagster['stopped'])}\n-> {START_STOPPED}")
    lines.append(f"Ingest    last successful run: {local_time(dagster['last_ingest'], zone)}")
    return "\n".join(lines)


def _memory_lines(memory: Mapping[str, Any] | None, zone: tzinfo | None) -> list[str]:
    if memory is None:
        return ["Memory    nothing is stored yet; for advice run: anamnesis doctor"]
    counts = memory["counts"]
    grouped = [
        f"{_GROUPS[name]:<10}{_values(of)}"
        for name, of in memory["by"].items()
        if any(c["value"] for c in of["counts"])
    ]
    documents = [row for row in memory["sources"] if row["kind"] == DOCUMENTS]
    logs = [row for row in memory["sources"] if row["kind"] != DOCUMENTS]
    lines = [
        f"Memory    {counted(counts['episodes'], 'episode')}, {counted(counts['passages'], 'passage')}, "
        f"{memory['coverage']:.1%} embedded; newest episode: {local_time(memory['newest_episode'], zone)}",
        *grouped,
        f"Logs      {_files(logs)}, {counted(_sum(logs, 'exchanges'), 'exchange')}, "
        f"{counted(_sum(logs, 'unparsed_lines'), 'line')} waiting, in {counted(len(logs), 'folder')}",
    ]
    if documents:
        lines.append(
            f"Documents {_files(documents)}, {counted(_sum(documents, 'parts'), 'section')} with former ones, "
            f"in {counted(len(documents), 'source')}"
        )
    crawler = memory.get("crawler") or {"hosts": (), "sources": ()}
    for row in crawler["sources"]:
        lines.append(f"Source    {row['name']} on {row['machine']}: {source_state(row, zone)}")
        lines += [f"          {one_line(problem)}" for problem in [*row["problems"], *row["errors"]][:3]]
    lines += [
        f"Away      {host['machine']}: {host['error']}; last seen {local_time(host['last_answer'], zone)}, "
        f"tried again from {local_time(host['next_try'], zone)} on"
        for host in crawler["hosts"]
        if host["state"] == "away"
    ]
    lines.append(f"Summaries {_summaries(memory['summaries'], memory.get('llm'))}")
    lines.append(f"Knowledge {waiting_text(memory['knowledge'])}")
    lines += [f"Space     {s['key']}  {s['status']}, {counted(s['embedded'], 'passage')}" for s in memory["spaces"]]
    if memory["reembed"]["state"] == "running":
        lines.append(reembed.render(memory["reembed"], zone))
    lines += [f"Note      {note}" for note in memory["notes"]]
    return lines + [f"Problem   {p['text']}\n-> {p['advice']}" for p in memory["problems"]]


def _values(counts: Mapping[str, Any]) -> str:
    """Render the values with the most episodes, or the latest months, and how many episodes have another."""
    shown = counts["counts"][:VALUES_SHOWN]
    pieces = [f"{each['value'] or 'none'} {each['episodes']:,}" for each in shown]
    rest = counts["total"] - counts["private"] - sum(each["episodes"] for each in shown)
    pieces += [f"others {rest:,}"] if rest else []
    return ", ".join(pieces + ([f"private {counts['private']:,}"] if counts["private"] else []))


def _files(rows: Sequence[Mapping[str, Any]]) -> str:
    return f"{counted(_sum(rows, 'files'), 'file')} ({_sum(rows, 'files_gone'):,} gone)"


def _sum(rows: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(int(row[name]) for row in rows)


def _summaries(by_model: Mapping[str, int], llm: Mapping[str, Any] | None) -> str:
    """Render the summaries by model, today's cost, and why some are missing."""
    counts = ", ".join(
        f"{n:,} {_WORDS.get(name, f'by {name}')}" for name, n in sorted(by_model.items(), key=lambda item: -item[1])
    )
    pieces = [counts or "none yet"]
    if llm and llm["used_today"]["calls"]:
        used = llm["used_today"]
        tokens = used["input_tokens"] + used["output_tokens"]
        pieces.append(f"today {counted(used['calls'], 'LLM call')}, {tokens:,} tokens, ${used['dollars']:.2f}")
    if llm and llm["problem"]:
        pieces.append(llm["problem"])
    return "; ".join(pieces)


_WORDS = {"problem": "standing in for an LLM's", "skip": "with nothing worth remembering"}
