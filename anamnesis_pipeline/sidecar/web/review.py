"""Review: proposals with their evidence, and what a person decides on them.

Every form works without scripts: it posts, and is redirected to the list, which says what was done and offers to undo
it. With scripts htmx follows the same redirect and takes the list out of the page.
"""

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import parse_qsl

from fastapi import Form
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from anamnesis_pipeline.errors import AnamnesisError, RetryLater
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.parsing.text.wording import one_line
from anamnesis_pipeline.services.fields import Name
from anamnesis_pipeline.services.proposals import Proposals, last_run
from anamnesis_pipeline.services.topics import TopicChange
from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_pipeline.sidecar.routes.proposals import proposals_of
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web import asking
from anamnesis_pipeline.sidecar.web.edits import BY_A_PERSON
from anamnesis_pipeline.sidecar.web.html import REVIEW, page, page_router
from anamnesis_pipeline.sidecar.web.undo import undo_of
from anamnesis_pipeline.store.knowledge_model import Evidence, Kind, Proposal, State

PATH = REVIEW
PER_PAGE = 20
MAX_AT_ONCE = 100
"""Proposals that one press decides on."""
MAX_LOOKED_AT = 1_000
"""Proposals looked at for those of a least confidence."""
KEPT_S = 5.0
"""Seconds that the number in the navigation is kept."""
LATE_DAYS = 7
"""Days without a run after which the pages warn."""
AROUND = 200
"""Characters of the episode on either side of a quote."""
ID_CHARS = 16
"""Of an id, in the address that says what was done."""

WORDS = {
    Kind.MERGE: "Merge what says the same",
    Kind.SUPERSEDE: "Replace an older statement",
    Kind.CONTRADICTION: "Statements that contradict each other",
    Kind.PROMOTE: "Add to a topic",
    Kind.LESSON: "Add a lesson",
    Kind.STALE_TOPIC: "Update a topic",
    Kind.DRIFT: "Claim that the files no longer support",
    Kind.PATTERN: "Keep a procedure",
    Kind.DOUBT: "Old statement in doubt",
    Kind.ARCHIVE: "Archive what is not used",
}
STATES = {**{state.value: state.capitalize() for state in State}, "all": "All"}
KEYS = {
    "j": "Next proposal",
    "k": "Previous proposal",
    "a": "Accept",
    "e": "Edit, then accept",
    "r": "Reject",
}
"""Keys of this page; on it they go before those of the navigation."""

router = page_router()
_dreaming = threading.Lock()
"""Held while this process runs the detectors."""

Id = Annotated[str, Field(min_length=4, max_length=64, pattern="^[0-9a-f]+$")]
FormId = Annotated[Id, Form()]
Reason = Annotated[str, Form(max_length=1_000)]
Query = Annotated[str, Form(max_length=4_000)]
"""Query string of the page on which the form is."""


class Asked(BaseModel):
    """What the page shows. `id`: one proposal alone; `after`: the one that the page follows; `done`: those that were
    just decided on; `left`: how many of these were not.
    """

    model_config = ConfigDict(extra="ignore")

    state: State | Literal["all"] = State.OPEN
    kind: Kind | None = None
    project: Name = ""
    confidence: Annotated[float, Field(ge=0, le=1)] = 0
    """The least that is shown."""
    id: Id | None = None
    after: Id | None = None
    done: Annotated[str, Field(max_length=(ID_CHARS + 1) * MAX_AT_ONCE, pattern="^[0-9a-f,]*$")] = ""
    left: Annotated[int, Field(ge=0)] = 0

    def filters(self) -> dict[str, str]:
        """Return the filters that were given, as a query has them."""
        given = self.model_dump(
            mode="json", include={"state", "kind", "project", "confidence", "id"}, exclude_defaults=True
        )
        return {name: str(value) for name, value in given.items() if value}


@dataclass(frozen=True, slots=True)
class Waits:
    """The open proposals by kind and project, without what is private, and when detectors last ran."""

    counts: Mapping[tuple[Kind, str], int]
    dreamt_at: datetime | None

    @property
    def open(self) -> int:
        """Return the number of open proposals."""
        return sum(self.counts.values())

    @property
    def by_project(self) -> dict[str, list[tuple[Kind, int]]]:
        """Return project -> kinds with their numbers, most first."""
        found: dict[str, list[tuple[Kind, int]]] = {}
        for (kind, project), number in sorted(self.counts.items(), key=lambda each: (each[0][1], -each[1])):
            found.setdefault(project, []).append((kind, number))
        return found

    @property
    def days(self) -> int | None:
        """Return the whole days since the last run; None: there was none."""
        return max(0, (datetime.now(UTC) - self.dreamt_at).days) if self.dreamt_at else None

    @property
    def is_late(self) -> bool:
        """Return whether the last run is too long ago."""
        return self.days is not None and self.days >= LATE_DAYS


@dataclass(frozen=True, slots=True)
class Quoted:
    """A quote within its episode. `episode` is None if that is gone."""

    evidence: Evidence
    label: str
    episode: Episode | None
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A proposal as the page shows it."""

    proposal: Proposal
    quotes: tuple[Quoted, ...]
    entry: str | None
    """Text that accepting writes."""
    file: TopicChange | None
    """The topic file that accepting changes."""

    @property
    def can_accept(self) -> bool:
        """Return whether accepting is possible here: no topic file of another machine is to be written."""
        return self.proposal.state is State.OPEN and (self.file is None or self.file.is_here)

    @property
    def can_undo(self) -> bool:
        """Return whether the decision can be taken back."""
        return self.proposal.state in (State.ACCEPTED, State.REJECTED)


@router.get(PATH)
def review_page(request: Request, services: Uses) -> Response:
    """Show proposals, by default the open ones."""
    given = asking.filled(request.query_params)
    asked, problem = asking.read_or_told(Asked, given)
    proposals, filters = proposals_of(services), asked.filters()
    found = _found(proposals, asked)
    waiting = undo_of(request).waiting()
    rows = [each for each in found if not waiting & set(each.episode_ids)][:PER_PAGE]
    done = [each for name in asked.done.split(",") if name and (each := _find(proposals, name))]
    episodes = services.store.episodes.get(sorted(_named(rows)))
    return page(
        request,
        "review.html",
        "Review",
        status=422 if problem else 200,
        own_keys=KEYS,
        names=asking.names_offered(services),
        asked=filters,
        problem=problem,
        here=asking.address_with("", filters, after=asked.after).removeprefix("?"),
        states=STATES,
        words=WORDS,
        waits=waits_of(services),
        late_days=LATE_DAYS,
        last=last_run(services.store),
        is_running=_dreaming.locked(),
        groups=grouped([shown_of(each, episodes, proposals.file_change(each)) for each in rows]),
        episodes=episodes,
        done=done,
        told=told_of(done, asked.left) if done else None,
        bulk=_bulk(proposals, asked),
        newest=asking.address_with(PATH, filters) if asked.after else None,
        older=asking.address_with(PATH, filters, after=found[PER_PAGE - 1].proposal_id)
        if len(found) > PER_PAGE
        else None,
        address=address_of,
    )


@router.post(PATH + "/accept")
def accept(
    request: Request,
    services: Uses,
    proposal_id: FormId,
    reason: Reason = "",
    entry: Annotated[str | None, Form(max_length=20_000)] = None,
    asked: Query = "",
) -> Response:
    """Do what a proposal would change, with the text of the form if it has one."""
    if entry is not None:
        entry = entry.replace("\r\n", "\n").strip()  # forms send these line ends
        if not entry:
            raise HTTPException(422, "Write the text first, or accept the proposed one.")
    done = proposals_of(services).accept(proposal_id, BY_A_PERSON.by, one_line(reason), entry)
    return _back(request, asked, [done])


@router.post(PATH + "/reject")
def reject(request: Request, services: Uses, proposal_id: FormId, reason: Reason = "", asked: Query = "") -> Response:
    """Reject a proposal."""
    return _back(request, asked, [proposals_of(services).reject(proposal_id, BY_A_PERSON.by, one_line(reason))])


@router.post(PATH + "/undo")
def undo(
    request: Request,
    services: Uses,
    ids: Annotated[list[Id], Form(max_length=MAX_AT_ONCE)],
    reason: Reason = "",
    asked: Query = "",
) -> Response:
    """Take back what was decided on some proposals."""
    return _each(request, services, ids, "undo", reason, asked)


@router.post(PATH + "/bulk")
def decide_on_several(
    request: Request,
    services: Uses,
    action: Annotated[Literal["accept", "reject"], Form()],
    ids: Annotated[list[Id], Form(max_length=MAX_AT_ONCE)],
    reason: Reason = "",
    asked: Query = "",
) -> Response:
    """Accept or reject the proposals that the page counted."""
    return _each(request, services, ids, action, reason, asked)


@router.post(PATH + "/dream")
def dream(request: Request, services: Uses, asked: Query = "") -> Response:
    """Run the detectors now, and wait for them."""
    if not _dreaming.acquire(blocking=False):
        raise HTTPException(409, "Detectors run already; their proposals are here in a moment.")
    try:
        proposals_of(services).dream(effective_settings(services.store), services.pool.pool)
    finally:
        _dreaming.release()
    return _back(request, asked, [])


def waits_of(services: Services) -> Waits:
    """Return what waits for a decision."""
    last = last_run(services.store)
    dreamt_at = datetime.fromisoformat(last.started_at) if last else None
    return Waits(proposals_of(services).open_counts(), dreamt_at)


def shown_of(proposal: Proposal, episodes: Mapping[str, Episode], file: TopicChange | None = None) -> Shown:
    """Return a proposal as the page shows it. Pure.

    :param episodes: those that it quotes, by id.
    :param file: what it changes in a topic file.
    """
    change = proposal.change
    labels = labels_of(proposal.evidence)
    quotes = []
    for label, each in zip(labels, proposal.evidence, strict=True):
        episode = episodes.get(each.episode_id)
        texts = (episode.raw_exchange, episode.summary) if episode else ()
        before, after = next((around(text, each.quote) for text in texts if each.quote in text), ("", ""))
        quotes.append(Quoted(each, label, episode, before, after))
    entry = change.topic.entry if change.topic else change.record.text if change.record else None
    return Shown(proposal, tuple(quotes), entry, file)


def labels_of(evidence: Sequence[Evidence]) -> list[str]:
    """Return what to call each piece of evidence, given in the order of time: old and new where two episodes differ in
    time, else a number. Pure.
    """
    times = [each.at for each in evidence]
    if len(evidence) == 2 and None not in times and times[0] != times[1]:
        return ["Older", "Newer"]
    return [f"{number} of {len(evidence)}" for number in range(1, len(evidence) + 1)]


def around(text: str, quote: str, chars: int = AROUND) -> tuple[str, str]:
    """Return the text before and after a quote that it holds, cut between words. Pure."""
    before, _, after = text.partition(quote)
    if len(before) > chars:
        before = "… " + before[-chars:].partition(" ")[2].lstrip()
    if len(after) > chars:
        after = after[:chars].rpartition(" ")[0].rstrip() + " …"
    return before, after


def grouped(shown: Sequence[Shown]) -> dict[tuple[str, Kind], list[Shown]]:
    """Return (project, kind) -> proposals, by project; within one the order stays. Pure."""
    found: dict[tuple[str, Kind], list[Shown]] = {}
    for each in shown:
        found.setdefault((each.proposal.project, each.proposal.kind), []).append(each)
    return dict(sorted(found.items()))


def told_of(done: Sequence[Proposal], left: int) -> str:
    """Say what became of proposals. Pure."""
    if len(done) == 1:
        (only,) = done
        told = "Open again" if only.state is State.OPEN else only.state.capitalize()
        is_reason_told = only.state is State.EXPIRED or (only.state is State.UNDONE and only.reason)
        said = f"{told}: {only.reason if is_reason_told else only.title}"
    else:
        counts = Counter(each.state for each in done)
        reasons = dict.fromkeys(each.reason for each in done if each.state is State.EXPIRED and each.reason)
        words = {State.OPEN: "open again", State.EXPIRED: f"expired ({'; '.join(reasons)})" if reasons else "expired"}
        said = ", ".join(f"{number} {words.get(state, state)}" for state, number in counts.items())
    return said + (f"; {left} left as they are" if left else "") + "."


def address_of(**filters: str) -> str:
    """Return the URL of the page with these filters. Pure."""
    return asking.address_with(PATH, {name: value for name, value in filters.items() if value})


def _found(proposals: Proposals, asked: Asked) -> list[Proposal]:
    """Return one more than a page holds."""
    if asked.id:
        one = _find(proposals, asked.id)
        return [one] if one else []
    after = _find(proposals, asked.after) if asked.after else None
    state = asked.state if isinstance(asked.state, State) else None
    return _sure(proposals, asked, state, PER_PAGE + 1, after)


def _find(proposals: Proposals, text: str) -> Proposal | None:
    try:
        return proposals.find(text)
    except AnamnesisError:  # forgotten meanwhile
        return None


def _named(rows: Sequence[Proposal]) -> set[str]:
    """Return the ids of all episodes that proposals name."""
    edits = [edit for each in rows for edit in each.change.statuses]
    ids = {edit.episode_id for edit in edits} | {edit.successor for edit in edits if edit.successor}
    return ids | {name for each in rows for name in each.episode_ids}


def _bulk(proposals: Proposals, asked: Asked) -> list[str]:
    """Return the ids that one press decides on: all open ones of the chosen kind and project."""
    if asked.kind is None or asked.state is not State.OPEN or asked.id:
        return []
    return [each.proposal_id for each in _sure(proposals, asked, State.OPEN, MAX_AT_ONCE)]


def _sure(
    proposals: Proposals, asked: Asked, state: State | None, limit: int, after: Proposal | None = None
) -> list[Proposal]:
    """Return proposals of the filters, among the next ones those of the least confidence."""
    among = proposals.listed(state, asked.kind, asked.project, MAX_LOOKED_AT if asked.confidence else limit, after)
    return [each for each in among if each.confidence >= asked.confidence][:limit]


def _each(request: Request, services: Services, ids: Collection[str], action: str, reason: str, asked: str) -> Response:
    """Decide on each; if none could be decided on, raise the first reason."""
    proposals, done = proposals_of(services), list[Proposal]()
    decide = {"accept": proposals.accept, "reject": proposals.reject, "undo": proposals.undo}[action]
    problem: AnamnesisError | None = None
    for name in dict.fromkeys(ids):
        try:
            done.append(decide(name, BY_A_PERSON.by, one_line(reason)))
        except AnamnesisError as exc:
            problem = problem or exc
            if isinstance(exc, RetryLater):  # the others would wait for the store as long
                break
    if problem and not done:
        raise problem
    return _back(request, asked, done, len(set(ids)) - len(done))


def _back(request: Request, asked: str, done: Sequence[Proposal], left: int = 0) -> Response:
    """Redirect to the page from which the form came, which says what was done."""
    request.app.state.waits.forget()
    given = dict(parse_qsl(asked))
    try:
        filters: dict[str, str | None] = {**Asked.model_validate(given).filters(), "after": given.get("after")}
    except ValidationError:
        filters = {}
    names = ",".join(each.proposal_id[:ID_CHARS] for each in done)
    changes = {**filters, "done": names or None, "left": str(left) if left else None}
    return RedirectResponse(asking.address_with(PATH, {}, **changes), 303)
