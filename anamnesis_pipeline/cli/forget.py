"""`anamnesis forget`: a dry run by default; with --yes it is done, for good."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from anamnesis_pipeline.cli.local_services import require_stored, store_to_write
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.parsing.text.wording import counted, project_name
from anamnesis_pipeline.search.time_bounds import bounds_of
from anamnesis_pipeline.services.blocklist import place_shown
from anamnesis_pipeline.services.forget import ForgetReport
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_pipeline.services.short_ids import whole_session_id
from anamnesis_pipeline.services.wiring import effective_settings, open_forgetter
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store

NAMED = 3
"""Files that an error names."""
_OF_WINDOWS = re.compile(r"[A-Za-z]:[\\/]")
_OF_HIT = re.compile(r"(?P<machine>[^/]+?):(?P<path>/.*?|[A-Za-z]:[\\/].*?)(?::\d+)?", re.DOTALL)
"""A file as a hit names it, with the line if that was copied, too."""


def request_of(
    *,
    ids: Sequence[str],
    session: str | None,
    project: str | None,
    path: str | None,
    machine: str | None,
    source: str | None,
    since: str | None,
    until: str | None,
    query: str | None,
    include_pinned: bool = False,
) -> ForgetRequest:
    """Return the request of the command line.

    :raises GiveUp: a time cannot be read.
    """
    first, end = bounds_of(since, until, datetime.now(UTC))
    return ForgetRequest(
        ids=tuple(ids),
        session_id=session or "",
        project=project or "",
        path=path or "",
        query=query or "",
        machine=machine or "",
        source=source or "",
        since=first,
        until=end,
        include_pinned=include_pinned,
    )


def run_forget(settings: Settings, request: ForgetRequest, *, yes: bool) -> ForgetReport:
    """Return what would be or was removed. An interrupted run is finished first.

    :raises GiveUp: nothing is stored, nothing is asked for, or nothing matches; a path is none.
    :raises IdAmbiguous: several sessions begin as the one that is named.
    """
    require_stored(settings)
    with store_to_write(settings) as store:
        request = replace(with_place(request, store), session_id=whole_session_id(store, request.session_id))
        forgetter = open_forgetter(effective_settings(store), store)
        report = forgetter.forget(request) if yes else forgetter.preview(request)
    if not report.episodes and not report.files and not report.problems and not report.spared:
        raise GiveUp("nothing that is stored matches that; anamnesis search and anamnesis projects show what there is")
    return report


def with_place(request: ForgetRequest, store: Store) -> ForgetRequest:
    """Return the request with its path as the store knows it: `machine:/path`, as in hits, is a path on that machine;
    a relative one starts at the current folder.

    :raises GiveUp: it names no file of this machine, so it is ambiguous.
    """
    path = request.path
    if not path or path.startswith("/") or _OF_WINDOWS.match(path):
        return request
    if found := _OF_HIT.fullmatch(path):
        return replace(request, machine=request.machine or found["machine"], path=found["path"])
    here = os.path.abspath(os.path.expanduser(path))
    if path.startswith("~") or os.path.exists(here):
        return replace(request, path=here)
    sources = store.files.sources()
    every = (place_shown(source, stored) for source in sources for stored in store.files.cursors(source.key))
    so_called = sorted(place for place in every if place.endswith(f"/{path}"))
    more = f", and {len(so_called) - NAMED:,} more" if len(so_called) > NAMED else ""
    called = f"; so called are {', '.join(so_called[:NAMED])}{more}" if so_called else ""
    raise GiveUp(f"--path {path}: say all of it, /folder/file or machine:/folder/file{called}")


def finish_forgetting(settings: Settings) -> tuple[bool, list[str]]:
    """Finish what an interrupted run left undone; False when there is nothing. With what could not be done.

    :raises GiveUp: nothing is stored.
    """
    require_stored(settings)
    with store_to_write(settings) as store:
        forgetter = open_forgetter(effective_settings(store), store)
        return forgetter.resume(), forgetter.problems


def render(report: ForgetReport) -> str:
    """Render the report. Pure."""
    verb = "would be forgotten" if report.dry_run else "are forgotten"
    said = [counted(report.messages, "message")] if report.messages or not report.sections else []
    said += [counted(report.sections, "section")] if report.sections else []
    lines = [
        f"{counted(report.episodes, 'episode')} with {' and '.join(said)}, "
        f"{counted(report.lines, 'archived line')} in {counted(report.files, 'file')} {verb}."
    ]
    for s in report.shown:
        known = (s.timestamp[:16], s.machine, project_name(s.project), s.kind, s.summary, s.episode_id)
        lines.append("  " + "  ".join(filter(None, known)))
    if report.episodes > len(report.shown):
        lines.append(f"  and {report.episodes - len(report.shown):,} more")
    if report.spared:
        lines.append(
            f"{counted(report.spared, 'pinned episode')} {'stays' if report.spared == 1 else 'stay'}: "
            "name the id with --id, or say --include-pinned."
        )
    lines += ["It may still be in:", *(f"  {place}" for place in report.remains)]
    lines += [f"Not done: {problem}" for problem in report.problems]
    if report.dry_run:
        lines.append("Nothing was changed. Say --yes to forget it, for good.")
    return "\n".join("".join(c if c.isprintable() else " " for c in line) for line in lines)
