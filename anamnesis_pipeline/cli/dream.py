"""`anamnesis dream`: propose what follows from what came, and decide on proposals."""

import getpass
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import require_stored, store_to_write
from anamnesis_pipeline.cli.sessions import AsJson
from anamnesis_pipeline.embeddings.base import Embedder
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.parsing.text.wording import counted, one_line, printable, project_name
from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.proposals import Proposals
from anamnesis_pipeline.services.proposed import AnyState, DreamOut, ProposalOut, dream_body, proposal_body, state_of
from anamnesis_pipeline.services.topic_edits import NOTHING_TO_UNDO, TopicEdits
from anamnesis_pipeline.services.topics import open_topics
from anamnesis_pipeline.services.wiring import (
    effective_settings,
    open_pieces,
    open_pool_of,
    what_is_private,
)
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Kind, Proposal, State

app = typer.Typer(help="Propose what holds, from what came, and decide on proposals.", no_args_is_help=False)

ProposalId = Annotated[str, typer.Argument(metavar="ID", help="Id of the proposal, or its beginning.")]
Reason = Annotated[str, typer.Option(help="Why; kept with the proposal.")]


@app.callback(invoke_without_command=True)
def _main(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        run()


@app.command("run")
def run(
    words_only: Annotated[bool, typer.Option("--words-only", help="Load no model; compare words alone.")] = False,
    as_json: AsJson = False,
) -> None:
    """Observe what came since the last run and make proposals. Nothing changes, unless `dream_auto` says so."""
    with _opened() as (settings, store, proposals), _embedder(store, words_only=words_only) as embedder:
        body = dream_body(proposals.dream(settings, embedder))
        waiting = proposals.waiting().open
    typer.echo(json.dumps(body, indent=2) if as_json else render_run(body, waiting))


@app.command("list")
def list_(
    state: Annotated[AnyState, typer.Option(help="State of the proposals.")] = "open",
    kind: Annotated[Kind | None, typer.Option(help="Only of this kind.")] = None,
    project: Annotated[str, typer.Option(help="Only of this project.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=200, help="Max proposals.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List proposals, newest first."""
    with _opened() as (_, _store, proposals):
        found = [proposal_body(proposals, each) for each in proposals.listed(state_of(state), kind, project, limit)]
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, indent=2))
        return
    for each in found:
        told = f"{each['state']:<8} " if state == "all" else ""
        typer.echo(
            f"{each['proposal_id'][:8]}  {told}{each['kind']:<13} {project_name(each['project'])}: "
            f"{_line(each['title'])}"
        )
    if not found:
        none = "There is no proposal." if state == "all" else f"No proposal is {state}."
        typer.echo(none + (" Make some with: anamnesis dream" if state in ("open", "all") else ""))


@app.command("show")
def show(proposal_id: ProposalId, as_json: AsJson = False) -> None:
    """Show a proposal: its evidence, and what accepting it changes."""
    with _opened() as (_, _store, proposals):
        body = proposal_body(proposals, proposals.find(proposal_id))
    typer.echo(json.dumps(body, ensure_ascii=False, indent=2) if as_json else render(body))


@app.command("accept")
def accept(
    proposal_id: ProposalId,
    reason: Reason = "",
    entry: Annotated[str | None, typer.Option(help="Text to write in place of the proposed one.")] = None,
) -> None:
    """Do what a proposal would change. It can be undone."""
    with _opened() as (_, _store, proposals):
        done = proposals.accept(proposal_id, getpass.getuser(), reason, entry)
    typer.echo("\n".join([_told(done), *applied_lines(done)]))


@app.command("reject")
def reject(proposal_id: ProposalId, reason: Reason = "") -> None:
    """Reject a proposal. It returns with new evidence only."""
    with _opened() as (_, _store, proposals):
        done = proposals.reject(proposal_id, getpass.getuser(), reason)
    typer.echo(f"{done.proposal_id[:8]} is {done.state}")


@app.command("undo")
def undo(proposal_id: ProposalId, reason: Reason = "") -> None:
    """Take back what accepting changed, or open a rejected proposal again."""
    with _opened() as (_, _store, proposals):
        done = proposals.undo(proposal_id, getpass.getuser(), reason)
    path = done.applied.path if done.applied and NOTHING_TO_UNDO not in done.reason else ""
    typer.echo(_told(done) + (f"\n  its entry is out of {printable(path)}" if path else ""))


def render_run(body: DreamOut, waiting: int) -> str:
    """Say what a run did. Pure."""
    read = counted(body["observed"], "session, note or text", "sessions, notes and texts")
    lines = [f"Done in {body['seconds']:.1f} s; {counted(waiting, 'proposal')} to decide on."]
    lines += [f"  read {read} that no ingest had read"] if body["observed"] else []
    for name, each in body["proposed"].items():
        told = ", ".join(f"{each[what]} {what}" for what in ("new", "renewed", "reopened") if each[what])
        lines += [f"  {name}: {told}"] if told else []
    lines += [f"  {name} failed: {one_line(why)}" for name, why in body["problems"].items()]
    return "\n".join(lines)


def applied_lines(done: Proposal) -> Iterator[str]:
    """Yield what accepting a proposal did: statuses, the note, and the file. Pure."""
    if done.applied is None or done.state is not State.ACCEPTED:
        return
    yield from (f"  {edit.episode_id[:12]} is {edit.status}" for edit in done.change.statuses)
    if done.applied.record_id:
        yield one_line(f"  kept as {done.applied.record_id}")
    if done.applied.path:
        verb = "wrote" if done.applied.is_done else "the next dream writes"
        yield one_line(f"  {verb} {done.applied.path}, read with the next crawl")


def render(body: ProposalOut) -> str:
    """Show a proposal. Pure."""
    lines = [
        f"{body['proposal_id'][:8]} {body['kind']} ({body['state']}), {project_name(body['project'])}",
        _line(body["title"]),
        f"Confidence {body['confidence']:.2f}, by {body['detector']}, {body['created_at'][:10]}",
    ]
    if body["decided_by"]:
        lines.append(
            f"Decided by {printable(body['decided_by'])}" + (f": {_line(body['reason'])}" if body["reason"] else "")
        )
    if body["reopens"]:
        lines.append(f"There is new evidence since {body['reopens'][:8]} was rejected.")
    lines.append("Evidence:")
    lines += [
        f"  {(each['at'] or '')[:10]} [{each['episode_id'][:12]}] {_line(each['quote'])}" for each in body["evidence"]
    ]
    lines.append("Accepting it:")
    change = body["change"]
    for edit in change["statuses"]:
        by = f" by {edit['superseded_by']}" if edit["superseded_by"] else ""
        lines.append(f"  {edit['episode_id'][:12]} becomes {edit['status']}{by}")
    if change["entry"]:
        place = (
            f"to {change['topic']}, under {change['heading']}" if change["topic"] else f"as a {change['record_type']}"
        )
        lines += [f"  adds {place}:", *(f"    {printable(line)}" for line in change["entry"].splitlines())]
    if change["diff"]:
        lines += [f"in {change['path']} on {change['machine']}:", *map(printable, change["diff"].splitlines())]
    return "\n".join(lines)


def _told(done: Proposal) -> str:
    return f"{done.proposal_id[:8]} is {done.state}" + (f": {_line(done.reason)}" if done.reason else "")


def _line(text: str) -> str:
    return one_line(printable(text))[:200]


@contextmanager
def _opened() -> Iterator[tuple[Settings, Store, Proposals]]:
    settings = settings_file.load()
    require_stored(settings)
    with store_to_write(settings) as store:
        stored = effective_settings(store)
        writer = EpisodeWriter(store, open_redactor(stored).mask_text, open_pieces(), None)
        topics = TopicEdits(store, open_topics(stored), stored.machine)
        yield stored, store, Proposals(store, writer, topics, what_is_private(store))


@contextmanager
def _embedder(store: Store, *, words_only: bool) -> Iterator[Embedder | None]:
    """Yield the model of the active space, loaded; None if there is none."""
    active = None if words_only else store.spaces.active()
    if active is None:
        yield None
        return
    with closing(open_pool_of(store, active, priority=Priority.QUERY)) as pool:
        try:
            pool.load()
        except AnamnesisError as exc:
            typer.echo(f"anamnesis: words alone are compared: {exc}", err=True)
            yield None
        else:
            yield pool
