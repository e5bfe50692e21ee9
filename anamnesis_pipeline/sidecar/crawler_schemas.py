"""Bodies of the routes on configured sources and on the crawler."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from anamnesis_pipeline.pipeline.source_specs import MOST_SPECS, Name, SpecModel
from anamnesis_pipeline.sidecar.jsonl_schemas import RunOut

_STRICT = ConfigDict(extra="forbid", strict=True)


# --- requests --------------------------------------------------------------------------------------------


class SourcesIn(BaseModel):
    """All sources that are configured; those of this machine's log roots are there without being named."""

    model_config = _STRICT

    sources: Annotated[list[SpecModel], Field(max_length=MOST_SPECS, description="All configured sources")]


class SourceTestIn(BaseModel):
    """Which source to try: one that is configured, by its name, or one that may become one."""

    model_config = _STRICT

    name: Annotated[Name | None, Field(description="A configured source")] = None
    source: Annotated[SpecModel | None, Field(description="A source that is not configured")] = None


class CrawlIn(BaseModel):
    """Which configured sources to read; without `sources` those with something new."""

    model_config = _STRICT

    sources: Annotated[list[Name], Field(default=[], max_length=MOST_SPECS, description="Read everything of these")]


class PatternIn(BaseModel):
    """A regular expression."""

    model_config = _STRICT

    pattern: Annotated[str, Field(max_length=2_000, description="Regular expression")]


# --- replies ---------------------------------------------------------------------------------------------


class SourceOut(TypedDict):
    """A configured source; a built-in one needs no configuration and cannot be changed."""

    name: str
    kind: Literal["claude_logs", "documents"]
    root: str
    host: str
    machine: str
    include: list[str]
    exclude: list[str]
    project: str
    instance: str
    interval_s: int | None
    private: bool
    max_file_bytes: int
    built_in: bool


class SourcesOut(TypedDict):
    """All sources that are crawled, built-in ones first. `warnings`: sources that are not private and read what a
    private one does.
    """

    sources: list[SourceOut]
    warnings: list[str]


class FirstLookOut(TypedDict):
    """What came of looking at sources at once that are new or were changed. `text` says it for people; `problems` are
    those of their machines. `run_id` as in what a run answers; null when nothing was started.
    """

    started: bool
    text: str
    run_id: str | None
    link: str | None
    problems: list[str]


class PutSourceOut(SourceOut):
    """A source as it is now; `first_look` is null when it was the same before."""

    first_look: FirstLookOut | None


class PutSourcesOut(SourcesOut):
    """All sources as they are now; `first_look` is of those that are new or were changed, null without any."""

    first_look: FirstLookOut | None


class FormatOut(TypedDict):
    """Files of one format."""

    format: str
    files: int
    bytes: int


class TrialOut(TypedDict):
    """What would be crawled. When it cannot be tried `ok` is false and `problem` says why and what to do."""

    ok: bool
    problem: str | None
    machine: str
    root: str
    clock_skew_s: float | None
    took_ms: float
    partitions: int
    files: int
    bytes: int
    formats: list[FormatOut]
    first: list[str]
    left_out: dict[str, int]
    examples: dict[str, list[str]]
    problems: list[str]


class HostOut(TypedDict):
    """A machine; `host` is empty for this one. `away`: it did not answer the last time, and is tried by the tick at
    `next_try` or the first one after it.
    """

    host: str
    machine: str
    state: Literal["new", "well", "away"]
    last_try: str | None
    last_answer: str | None
    failures: int
    next_try: str | None
    error: str | None
    clock_skew_s: float | None


class CrawledOut(TypedDict):
    """How a configured source is doing. `lag_s`: how long the part of it that waits longest has something new, of one
    that cannot be seen the time since the last success, null without any; `behind`: how many have. `fresh`: it was
    seen within three intervals. `errors`: why its machine is away, files that cannot be read, and what else went wrong
    when it was last read.
    """

    name: str
    kind: str
    machine: str
    root: str
    built_in: bool
    interval_s: int
    last_success: str | None
    fresh: bool
    lag_s: float | None
    behind: int
    partitions: list[str]
    files: int
    bytes: int
    left_out: dict[str, int]
    errors: list[str]
    problems: list[str]


class CrawlerTotalsOut(TypedDict):
    """Counts of everything that was read."""

    sources: int
    partitions: int
    files: int
    files_gone: int
    files_unread: int
    bytes: int
    episodes: int


class CrawlerStatusOut(TypedDict):
    """How the crawler is doing. `running` is null, with the reason in `dagster`, while Dagster is away, and true where
    a run was asked for that has not begun. `retired`: partitions whose source is not configured any more; they keep
    what was read.
    """

    running: bool | None
    current_activity: list[str]
    runs: list[RunOut]
    last_run: RunOut | None
    duration_s: float | None
    interval_s: int
    totals: CrawlerTotalsOut
    hosts: list[HostOut]
    sources: list[CrawledOut]
    retired: list[str]
    dagster: str | None


class CrawlStartedOut(TypedDict):
    """What was asked of Dagster: one run per partition. `run_id` is the id of one of them, or of the backfill of many;
    null when nothing is new.
    """

    run_id: str | None
    link: str | None
    sources: list[str]
    running_already: list[str]
    problems: list[str]


class LogFolderOut(TypedDict):
    """A folder of this machine that may hold logs; `configured`: a source reads it."""

    path: str
    logs: int
    readable: bool
    configured: bool


class LogFoldersOut(TypedDict):
    """Folders that may hold logs; one without any is told as well."""

    folders: list[LogFolderOut]


class PatternOut(TypedDict):
    """Whether a text is a regular expression, and why not."""

    valid: bool
    problem: str | None
