"""Bodies of requests and replies, as the contract names their fields."""

from dataclasses import replace
from typing import Annotated, Any, Literal, NotRequired, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.search.profiles import PROFILES, Decay, Profile
from anamnesis_pipeline.search.query import LISTS, ListName, Mode, SearchQuery
from anamnesis_pipeline.services.fields import (
    WHOLE,
    EpisodeId,
    FieldError,
    Kind,
    Metadata,
    Name,
    QueryText,
    SummaryText,
    Tags,
    Text,
    Time,
)
from anamnesis_pipeline.services.posting import EpisodeDraft
from anamnesis_pipeline.store.statements import Statement

MAX_BULK_EPISODES = 1000
MAX_QUOTE_TOKENS = 400
_STRICT = ConfigDict(extra="forbid", strict=True)

Include = Literal["raw", "short_id"]
ConfidenceName = Literal["strong", "fair", "weak"]
LayerName = Literal["working", "episodic", "semantic", "procedural", "codebase"]
TypeName = Literal[
    "note",
    "decision",
    "preference",
    "correction",
    "lesson",
    "fact",
    "procedure",
    "error",
    "topic",
    "skill_idea",
    "absent",
]
"""What a posted episode states; it is the episode's kind. `absent`: that something does not exist."""
_LISTS_OF = {"semantic": "dense", "exact": "exact"}
"""Mode -> how the names of its candidate lists begin; hybrid asks all."""
StatusName = Literal["active", "challenged", "superseded", "merged", "invalidated"]


# --- requests --------------------------------------------------------------------------------------------


Summary = Annotated[SummaryText, Field(description="Text that is searched and shown")]
Instance = Annotated[Name, Field(description="Who or what wrote it, e.g. a machine or an agent")]
Project = Annotated[Name, Field(description="Name of the project")]
RawExchange = Annotated[Text, Field(description="Whole text, which is searched too")]
EpisodeTags = Annotated[Tags, Field(description="Tags to filter by")]
EpisodeKind = Annotated[Kind, Field(description="Kind to filter by, e.g. `note`, `decision`")]


Subject = Annotated[Name, Field(description="What it states something about; of each, the latest holds")]
ValidFrom = Annotated[Time | None, Field(description="It holds from then on")]
ValidUntil = Annotated[Time | None, Field(description="It holds until then")]


class EpisodeIn(BaseModel):
    """A new episode."""

    model_config = _STRICT

    summary: Summary
    instance: Instance
    project: Project
    raw_exchange: RawExchange = ""
    tags: EpisodeTags = []
    timestamp: Annotated[Time | None, Field(description="Default: now")] = None
    episode_id: Annotated[EpisodeId | None, Field(description="Default: made of the content")] = None
    kind: EpisodeKind = "note"
    metadata: Metadata = {}
    subject: Subject | None = None
    valid_from: ValidFrom = None
    valid_until: ValidUntil = None
    replaces: Annotated[EpisodeId | None, Field(description="Id of the episode that it takes the place of")] = None

    def draft(self) -> EpisodeDraft:
        """The same as the poster takes it."""
        return EpisodeDraft(
            summary=self.summary,
            instance=self.instance,
            project=self.project,
            raw_exchange=self.raw_exchange,
            tags=tuple(self.tags),
            timestamp=self.timestamp,
            episode_id=self.episode_id,
            kind=self.kind,
            metadata=self.metadata,
            statement=Statement(self.subject or "", self.valid_from, self.valid_until),
            replaces=self.replaces,
        )


class BulkIn(BaseModel):
    """Many episodes; each is checked on its own, so that a bad one fails alone."""

    model_config = _STRICT

    episodes: Annotated[list[Any], Field(max_length=MAX_BULK_EPISODES)]


class EpisodeChanges(TypedDict, total=False):
    """Fields of an episode to change; the id is immutable."""

    __pydantic_config__ = ConfigDict(  # type: ignore[misc]
        extra="forbid",
        strict=True,
        json_schema_extra={
            "minProperties": 1,
            "dependentRequired": {"reason": ["status"], "by": ["status"]},
        },
    )

    summary: Summary
    instance: Instance
    project: Project
    raw_exchange: RawExchange
    tags: EpisodeTags
    timestamp: Annotated[Time, Field(description="Time of the episode")]
    kind: EpisodeKind
    metadata: Metadata
    subject: Subject | None
    valid_from: ValidFrom
    valid_until: ValidUntil
    status: Annotated[
        StatusName,
        Field(
            description="`challenged` is shown with that label, `superseded`, `merged` and `invalidated` are left out "
            "of searches"
        ),
    ]
    superseded_by: Annotated[EpisodeId | None, Field(description="Id of the episode that replaces it")]
    reason: Annotated[Text, Field(max_length=1_000, description="Why the status changes; kept in its history")]
    by: Annotated[Name, Field(description="Who changes the status; kept in its history")]


class SearchIn(BaseModel):
    """A question, in `query` or `query_text`, and what narrows it."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"oneOf": [{"required": ["query"]}, {"required": ["query_text"]}]},
    )

    query: Annotated[QueryText, Field(default="", description="Question or literal text")]
    query_text: Annotated[QueryText, Field(default="", description="The same as `query`")]
    top_k: Annotated[int, Field(ge=1, le=100, description="Max results"), WHOLE] = 5
    mode: Annotated[
        Literal["hybrid", "semantic", "exact"],
        Field(description="`hybrid`: words and meaning; `semantic`: meaning only; `exact`: literal text"),
    ] = "hybrid"
    project: Annotated[Name | None, Field(description="Only this project; `api` also matches `acme/api`")] = None
    instance: Annotated[Name | None, Field(description="Only this instance")] = None
    tags: Annotated[Tags, Field(description="Only with all of these tags")] = []
    kind: Annotated[list[Kind], Field(max_length=50, description="Only one of these kinds")] = []
    type: Annotated[
        list[TypeName],
        Field(max_length=12, description="Only what states one of these: posted so, or drawn by an LLM"),
    ] = []
    session_id: Annotated[
        Name | None, Field(description="Only this session, by its id or a unique prefix of at least 4 characters")
    ] = None
    as_of: Annotated[Time | None, Field(description="As the memory would have answered then")] = None
    layer: Annotated[
        list[LayerName],
        Field(
            max_length=5,
            description="Only one of these layers: `working` (last half hour, not read twice yet), `episodic`, "
            "`semantic` (curated, or valuable and read five times), `procedural`, `codebase`",
        ),
    ] = []
    since: Annotated[Time | None, Field(description="Start time, inclusive")] = None
    until: Annotated[Time | None, Field(description="End time, exclusive")] = None
    include_superseded: Annotated[bool, Field(description="Include superseded and removed texts")] = False
    include_private: Annotated[
        list[Name],
        Field(max_length=50, description="Private projects and sources to include without `project`; `*`: all"),
    ] = []
    min_score: Annotated[
        Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)] | None,
        Field(description="Min score of a result; 0: also the nearest of `exact` that lack some of the text"),
    ] = None
    max_tokens: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000), WHOLE] | None, Field(description="Max tokens of all results together")
    ] = None
    fold: Annotated[bool, Field(description="Collapse near-duplicates into one result")] = True
    weak: Annotated[
        bool,
        Field(description="Return the nearest, marked `weak`, if nothing answers well; not with profile `context`"),
    ] = True
    quote_tokens: Annotated[
        int,
        Field(ge=0, le=MAX_QUOTE_TOKENS, description="Max tokens of `quote`, the sentences that answer best; 0: none"),
        WHOLE,
    ] = 0
    include: Annotated[
        list[Include], Field(max_length=10, description="`raw` adds `raw_exchange`, `short_id` a short id")
    ] = []
    explain: Annotated[bool, Field(description="Add the ranks in each list and the effect of each stage")] = False
    track: Annotated[bool, Field(description="Count the results as retrieved, and store the search")] = True
    profile: Annotated[
        Literal["default", "facts", "recent", "context", "plain"],
        Field(
            description="Ranking: `facts` prefers curated text, `recent` lowers old text, `context` is that of "
            "sessions, `plain` is the fused lists alone"
        ),
    ] = "default"
    decay: Annotated[
        Literal["none", "multiplicative", "additive", "l2", "huber", "elastic"] | None,
        Field(
            description="Effect of age on working and episodic results, in place of the profile's; `l2`, `huber` and "
            "`elastic` are retention curves, which less trusted text falls faster on"
        ),
    ] = None
    half_life_days: Annotated[
        float, Field(gt=0, le=36_500, description="Half-life of `multiplicative` and of the retention curves, in days")
    ] = 30.0
    scale_days: Annotated[float, Field(gt=0, le=36_500, description="Scale of `additive`, in days")] = 90.0
    decay_weight: Annotated[
        Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None,
        Field(
            description="How much age counts, from 0 (not at all) to 1; without a `decay` that of `multiplicative`. "
            "Left out: 0.3 of `additive`, 0.5 of the others"
        ),
    ] = None
    lists: Annotated[
        list[ListName],
        Field(max_length=len(LISTS), description="Ask only these candidate lists, named as `explain` does; empty: all"),
    ] = []

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        if len(self.model_fields_set & {"query", "query_text"}) != 1:
            raise ValueError("give either query or query_text")
        return self

    @model_validator(mode="after")
    def _knobs_fit(self) -> Self:
        if self.decay == "none" and self.decay_weight:
            raise ValueError("decay_weight needs a decay other than none")
        asked = [name for name in LISTS if self.mode == "hybrid" or name.startswith(_LISTS_OF[self.mode])]
        if self.lists and not set(self.lists) & set(asked):
            raise ValueError(f"mode {self.mode} asks none of these lists, but {', '.join(asked)}")
        return self

    def question(self) -> SearchQuery:
        """The same as the engine takes it."""
        return SearchQuery(
            text=self.query or self.query_text,
            top_k=self.top_k,
            mode=Mode(self.mode),
            where=EpisodeFilter(
                projects=(self.project,) if self.project else (),
                instance=self.instance,
                tags=tuple(self.tags),
                kinds=tuple(self.kind),
                types=tuple(self.type),
                session_id=self.session_id,
                layers=tuple(self.layer),
                since=self.since,
                until=self.until,
                include_superseded=self.include_superseded,
            ),
            min_score=self.min_score,
            max_tokens=self.max_tokens,
            fold=self.fold,
            track=self.track,
            explain=self.explain,
            sentences=self.top_k if self.quote_tokens else 0,
            include_private=tuple(self.include_private),
            as_of=self.as_of,
            weak=self.weak and self.profile != "context",
            profile=self._ranking(),
            lists=tuple(self.lists),
        )

    def _ranking(self) -> Profile:
        profile = PROFILES[self.profile]
        decay = profile.decay if self.decay is None else Decay(self.decay)
        if self.decay_weight is not None and (not self.decay_weight or decay is Decay.NONE):
            decay = Decay.MULTIPLICATIVE if self.decay_weight else Decay.NONE
        return replace(
            profile,
            decay=decay,
            decay_weight=self.decay_weight,
            half_life_days=self.half_life_days,
            scale_days=self.scale_days,
        )


# --- replies ---------------------------------------------------------------------------------------------


class GroundOut(TypedDict):
    """How many of the files that a session edited changed after it ended: `changed` of the `looked_at`, which are at
    most 50 of all `edited`. `by`: on this machine's `disk`, now, or as the last `crawl` saw them.
    """

    changed: int
    looked_at: int
    edited: int
    by: Literal["disk", "crawl"]


class OriginOut(TypedDict):
    """How to go on with a session: `resume`, a command, in this `folder`; and its `ground`. Each if it is known."""

    folder: NotRequired[str]
    resume: NotRequired[str]
    ground: NotRequired[GroundOut]


class SourceOut(OriginOut):
    """Where an episode comes from; empty for a posted one. `lines`: first and last of a section in its document.
    `title`: its headings, or names in code, outermost first. `trust`: written down to be remembered, any other
    document, said in a session, or answered by the chat. `continued_in`: the session to resume instead of that one.
    `session_log` is `missing` for a subagent whose session's own log was not found. With a search: `resume`, the
    command that goes on with the session, on this `machine` in this `folder`, and its `ground`, if it is known.
    """

    machine: str
    path: str
    session_id: str
    message_ids: list[str]
    lines: NotRequired[list[int]]
    title: NotRequired[list[str]]
    continued_in: NotRequired[str]
    session_log: NotRequired[Literal["missing"]]
    trust: NotRequired[Literal["curated", "file", "transcript", "chat"]]


AuthorityOut = Literal["authoritative", "arbitration", "routing"]


class EpisodeOut(TypedDict):
    """An episode. `title`: what it is about, at most 90 characters. `raw_exchange` comes with `include=raw`, and
    `short_id`, a beginning of the id that no other one has now and that reads it as well, with `include=short_id`.
    `authority`: which of several that disagree holds. What was written down to be remembered does; of a session the
    text itself settles what was said (`arbitration`, with `include=raw`); everything else says where to look.
    """

    episode_id: str
    short_id: NotRequired[str]
    timestamp: str
    instance: str
    project: str
    kind: str
    title: str
    summary: str
    raw_exchange: NotRequired[str]
    tags: list[str]
    retrieval_count: int
    last_retrieved: str | None
    status: StatusName
    superseded_by: str | None
    superseded_at: str | None
    authority: AuthorityOut
    source: SourceOut
    metadata: dict[str, Any]
    subject: NotRequired[str]
    valid_from: NotRequired[str]
    valid_until: NotRequired[str]


class AlikeOut(TypedDict):
    """An episode that says nearly the same. `similarity_score` is the cosine of its nearest passage."""

    episode_id: str
    similarity_score: float
    summary: str


class PostedOut(EpisodeOut):
    """A posted episode. `operation`: it was `added`; `updated`: it took the place of `replaced`, former statements on
    its subject; `unchanged`: the same was stored. `challenged`: pinned former statements on its subject, which stay
    beside it with this status. `novelty`, from 0 (said before) to 1 (as far from everything in its
    project as an unrelated text); null without vectors. `alike`: what says nearly the same in its project.
    `projects_alike`: other projects that its `project` may mean, such as `acme/api` for `api`; it is in none of them.
    """

    operation: Literal["added", "updated", "unchanged"]
    replaced: list[str]
    challenged: list[str]
    novelty: float | None
    alike: list[AlikeOut]
    projects_alike: list[str]


class PageOut(TypedDict):
    """Episodes, newest first; `next_cursor` is null on the last page."""

    items: list[EpisodeOut]
    next_cursor: str | None


class StatusChangeOut(TypedDict):
    """A change of an episode's status. `superseded_by`: the episode that stands for it from then on; `by`: a person, a
    client, or the name of a rule.
    """

    episode_id: str
    former: StatusName
    status: StatusName
    superseded_by: str | None
    reason: str
    by: str
    at: str


class HistoryOut(TypedDict):
    """The latest changes of an episode's status, oldest first."""

    items: list[StatusChangeOut]


class BulkFailure(TypedDict):
    """One episode of a bulk call that was not written."""

    index: int
    errors: list[FieldError]


class BulkOut(TypedDict):
    """What became of the episodes of a bulk call."""

    created: int
    unchanged: int
    failed: list[BulkFailure]


class HitOut(TypedDict):
    """One result. `score` compares within one answer; `similarity_score` is the cosine of the best passage.
    `confidence` says how sure it is that it answers; `weak`: hardly.

    `boosted_score` is the score again, in which `priority_multiplier` already is: what the episode is worth and how far
    it may be relied on. `consolidated_from` names the episodes that it was made of, if its metadata says so.
    `authority` is that of an episode. `layer` is where it is now, what happened lately or a while ago, what holds, how
    something is done, or code. `excerpt` is whole passages; `quote` comes with `quote_tokens`: sentences of them, or
    from right beside them, that follow each other and answer best.
    """

    episode_id: str
    short_id: NotRequired[str]
    score: float
    confidence: ConfidenceName
    weak: bool
    similarity_score: float | None
    boosted_score: float
    priority_multiplier: float
    timestamp: str
    instance: str
    project: str
    kind: str
    title: str
    summary: str
    excerpt: str
    quote: NotRequired[str]
    raw_exchange: NotRequired[str]
    tags: list[str]
    retrieval_count: int
    status: StatusName
    superseded_by: str | None
    superseded_at: str | None
    consolidated_from: list[str]
    authority: AuthorityOut
    layer: LayerName
    source: SourceOut
    also: list[str]
    subject: NotRequired[str]
    valid_from: NotRequired[str]
    valid_until: NotRequired[str]
    explanation: NotRequired[dict[str, Any] | None]


class SearchOut(TypedDict):
    """Results, best first. `weak`: nothing answers well, and these are the nearest. `degraded` names the parts that did
    not answer, and why. `explanation` comes with `explain`: what each list proposed, the time that the question names,
    and how many episodes the floor and folding left out.
    """

    results: list[HitOut]
    weak: bool
    took_ms: float
    model_id: str | None
    degraded: list[str]
    total_tokens: int
    explanation: NotRequired[dict[str, Any] | None]


class HealthOut(TypedDict):
    """The process is alive."""

    status: Literal["ok"]
    service: Literal["anamnesis"]
    version: str


class CoverageOut(TypedDict):
    """How much of the active space is embedded: passages."""

    space: str | None
    model_id: str | None
    embedded: int
    stored: int


class ReadyOut(TypedDict):
    """Everything a search needs is there. `store`: the file or the database that is searched."""

    status: Literal["ready"]
    missing: list[str]
    coverage: CoverageOut
    store: str


class Problem(TypedDict):
    """RFC 9457. `errors` comes with 422, `missing`, `coverage` and `store` with 503 of `/ready`."""

    type: str
    title: str
    status: int
    detail: str
    errors: NotRequired[list[FieldError]]
    missing: NotRequired[list[str]]
    coverage: NotRequired[CoverageOut | None]
