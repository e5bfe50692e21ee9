"""Every setting, its unit and default.

A value comes from the first of these places that has one:

1. the store: `anamnesis config set NAME VALUE`, or the pages and routes that set it;
2. the environment: `ANAMNESIS_<NAME>`;
3. the file `anamnesis_<name>` in `secrets_dir`;
4. `config.toml` in the home, with names in lower case and without `ANAMNESIS_`;
5. the default.

With `lock_env`, the environment and `config.toml` override the store. Settings that are read before the store is open
(home, store, ports, bind address) and secrets cannot be stored. `anamnesis config` shows each value and its place.

The embedding model, its cores, the ranking and the settings of the chat apply at once. Other stored settings and
`config.toml` apply to the service at its next start, and to Dagster at its next tick or run; times of schedules and
sensors apply once Dagster's code location has reloaded. The environment applies at the next start of `anamnesis up`.
Commands use the ports of the running `anamnesis up` of their home, unless `ANAMNESIS_PORT` or
`ANAMNESIS_DAGSTER_PORT` is set.
"""

import ipaddress
import json
import os
import socket
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from anamnesis_pipeline.embeddings.registry import MINILM
from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.model import SummarizerName
from anamnesis_pipeline.parsing.claude_logs.value import MIN_VALUE, WEIGHTS
from anamnesis_pipeline.search.profiles import PROFILES
from anamnesis_pipeline.store.knowledge_model import UNDONE_EXACTLY, Kind
from anamnesis_pipeline.store.mongo.address import MASK, masked

ENV_PREFIX = "ANAMNESIS_"


def default_home() -> Path:
    """Return the default home."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "anamnesis"


def chosen_home() -> Path:
    """Return the home of this process."""
    given = os.environ.get(f"{ENV_PREFIX}HOME")
    return (Path(given) if given else default_home()).expanduser().absolute()


def chosen_secrets_dir(default: Path) -> Path | None:
    """Return the folder of secret files; None if missing, since pydantic-settings would warn."""
    folder = Path(os.environ.get(f"{ENV_PREFIX}SECRETS_DIR") or default)
    return folder if folder.is_dir() else None


def in_environment(names: Collection[str]) -> set[str]:
    """Return the settings that environment variables set."""
    return {name for name in names if os.environ.get(ENV_PREFIX + name.upper())}


def in_secret_files(folder: Path | None, names: Collection[str]) -> set[str]:
    """Return the settings that secret files set.

    :raises BadSetting: the folder or such a file is not readable.
    """
    files = {name: folder / f"{ENV_PREFIX}{name}".lower() for name in names} if folder else {}
    refused = [p for p in (folder, *files.values()) if p and os.access(p, os.F_OK) and not os.access(p, os.R_OK)]
    if refused or (folder and not os.access(folder, os.X_OK)):
        raise BadSetting(f"{[*refused, folder][0]} is not readable for this user; change its owner or its mode")
    return {name for name, file in files.items() if file.is_file()}


def read_file(path: Path, names: Collection[str]) -> dict[str, Any]:
    """Return name -> value from a file; empty if there is none.

    :raises BadSetting: it is not TOML, or sets an unknown name, or the home.
    """
    if not os.path.isdir(path.parent):  # a home that cannot be created has none
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, OSError) as exc:
        raise BadSetting(f"{path} cannot be read as TOML: {exc}; mend it or move it away") from exc
    if unknown := sorted(values.keys() - set(names)):
        known = ", ".join(sorted(names))
        raise BadSetting(f"{path}: {', '.join(unknown)} is not a setting; the settings are: {known}")
    if "home" in values:
        raise BadSetting(
            f"{path} lies in the home folder, so it cannot say where that is; set {ENV_PREFIX}HOME instead"
        )
    return values


MAX_PER_RUN = 1_000_000
Points = Annotated[float, Field(ge=0, le=20)]


def split_texts(value: Any) -> Any:
    """What a text separates by `,`; anything else stays, for pydantic to judge."""
    return tuple(text.strip() for text in value.split(",") if text.strip()) if isinstance(value, str) else value


def split_pairs(value: Any) -> Any:
    """The mapping of a text like `a=1,b=2`; anything else stays, for pydantic to judge."""
    if not isinstance(value, str):
        return value
    return dict(piece.strip().partition("=")[::2] for piece in value.split(",") if piece.strip())


MIN_INTERVAL_S, MAX_INTERVAL_S = 30, 86_400
"""Limits of the polling interval of a source, in seconds."""
Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_texts)]
"""As a list, or separated by `,`."""


class LlmSettings(BaseSettings):
    """Each field's description is its row in docs/reference/settings.md."""

    summarizer: SummarizerName = Field(
        "none",
        title="Summaries by",
        description="LLM that writes the summaries; `none`: sentences of the text itself are selected",
    )
    summary_model: str = Field(
        "", title="Model", description="Model of the summarizer; empty: the default of the backend"
    )
    summary_timeout_s: int = Field(180, ge=5, le=3600, description="Max wait for the reply of an LLM, in seconds")
    summary_min_chars: int = Field(
        200,
        ge=0,
        le=10_000,
        description="Min length of a text that an LLM summarizes, in characters; a shorter one is its own summary",
    )
    summary_min_value: float = Field(
        MIN_VALUE,
        ge=0,
        le=20,
        title="Value filter",
        description="Min value of an exchange that an LLM summarizes; `anamnesis value` explains the value",
    )
    value_weights: Annotated[dict[str, Points], NoDecode] = Field(
        {}, description="Points of the rules of that value, if not the defaults, e.g. `correction=4,edits=0`"
    )
    max_exchanges_per_run: int = Field(
        0,
        ge=0,
        le=MAX_PER_RUN,
        title="Chunks per run",
        description="Max chunks of exchanges summarized per run (0 = unlimited); the next run continues",
    )
    claude_command: str = Field("claude", min_length=1, description="Command line of Claude Code, for `claude_cli`")
    claude_host: str = Field(
        "",
        description="SSH host of that command, `user@host` or `user@host:port`; empty: this machine",
    )
    ollama_urls: Texts = Field(
        ("http://127.0.0.1:11434",), description="Base URLs of Ollama servers, tried in this order, separated by `,`"
    )
    openai_url: str = Field("", description="Base URL of an OpenAI-compatible service, e.g. `http://127.0.0.1:8080/v1`")
    openai_api_key: SecretStr | None = Field(
        None,
        description="Key of that service; without `openai_url` of OpenAI's embeddings, else `OPENAI_API_KEY`",
    )
    anthropic_api_key: SecretStr | None = Field(
        None, description="Key of the Claude API; if not set: `ANTHROPIC_API_KEY`"
    )
    anthropic_url: str = Field("", description="Base URL of the Claude API, if not Anthropic's own")
    voyage_api_key: SecretStr | None = Field(
        None, description="Key of Voyage's embeddings; if not set: `VOYAGE_API_KEY`"
    )
    gemini_api_key: SecretStr | None = Field(
        None, description="Key of Gemini's embeddings; if not set: `GEMINI_API_KEY`"
    )
    embedding_api_url: str = Field("", description="Base URL of the embedding service, if not its own")
    llm_requests_per_minute: int = Field(
        50, ge=1, le=10_000, title="Calls a minute", description="Max LLM calls per minute"
    )
    llm_daily_tokens: int | None = Field(
        None, ge=0, title="Tokens a day", description="Max LLM tokens per day (UTC), input and output together"
    )
    llm_daily_dollars: float | None = Field(
        None,
        ge=0,
        title="Dollars a day",
        description="Max US dollars per day (UTC); without a budget a paid LLM runs only when a person starts it",
    )
    llm_input_price: float | None = Field(
        None, ge=0, description="US dollars per million input tokens, for a model of unknown price"
    )
    llm_output_price: float | None = Field(
        None, ge=0, description="US dollars per million output tokens, for a model of unknown price"
    )
    llm_batch_min: int = Field(
        100,
        ge=2,
        le=10_000,
        title="Batch from",
        description="Min chunks that go to the Claude API as a batch, at half the price",
    )

    @field_validator("value_weights", mode="before")
    @classmethod
    def _split_weights(cls, value: Any) -> Any:
        value = split_pairs(value)
        if isinstance(value, Mapping) and (unknown := sorted(value.keys() - WEIGHTS.keys())):
            raise ValueError(f"{unknown[0]!r} is no rule of the value; the rules are: {', '.join(WEIGHTS)}")
        return value


_MEASURED = PROFILES["default"]
Factor = Annotated[float, Field(ge=0.1, le=10)]


class Ranking(BaseModel):
    """Numbers that order hits, by the fields of `search.profiles.Profile`. The defaults are the measured set
    (benchmarks/ranking.md).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rrf_k: int = Field(
        _MEASURED.rrf_k,
        ge=1,
        le=1_000,
        description="Constant of reciprocal rank fusion; a smaller one trusts the first ranks of a list more",
    )
    depth: int = Field(_MEASURED.depth, ge=5, le=500, description="Ranks of a candidate list that count in full")
    late: float = Field(
        _MEASURED.late, ge=0, le=10, description="Weight of the order by late interaction; the fused lists have 1"
    )
    sharpness: float = Field(
        _MEASURED.sharpness, ge=0, le=20, description="How fast scores fall with the distance from the best match"
    )
    neighbours: float = Field(
        _MEASURED.neighbours, ge=0, le=1, description="Share of its better neighbour's score that a passage gets"
    )
    company: float = Field(
        _MEASURED.company,
        ge=0,
        le=5,
        description="Co-occurrence boost: share of the scores of the same conversation that an episode gets",
    )
    literal: float = Field(
        _MEASURED.literal,
        ge=0,
        le=20,
        description="Weight of the list `exact` of identifiers, paths and versions; 0: neither it nor `rare` is asked",
    )
    floor: float = Field(
        _MEASURED.floor,
        ge=-20,
        le=20,
        description="Relevance threshold, in log odds: hits below it are weak; without `weak` none is found",
    )
    curated: Factor = Field(_MEASURED.curated, description="Factor for curated text: topics, `CLAUDE.md`, hand-offs")
    chat: Factor = Field(_MEASURED.chat, description="Factor for answers of the chat")
    routine: Factor = Field(_MEASURED.routine, description="Factor for exchanges below the value filter")
    priority: Factor = Field(_MEASURED.priority, description="Factor for the tags `critical` and `correction`")
    merged: Factor = Field(_MEASURED.merged, description="Factor for an episode that was merged from others")
    named_time: Factor = Field(_MEASURED.named_time, description="Factor for text of the time that a question names")
    named_speaker: Factor = Field(
        _MEASURED.named_speaker, description="Factor for posted turns of a speaker that a question names"
    )
    voices: float = Field(
        _MEASURED.voices,
        ge=0,
        le=3,
        description="How much it counts whether a person, Claude or a tool said it in a log; 0: not at all",
    )

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        value = split_pairs(value)
        if not isinstance(value, Mapping | cls):
            raise ValueError("it has to be a table of numbers, e.g. ranking = {rrf_k = 40}")  # noqa: TRY004 - pydantic reports it
        if isinstance(value, Mapping) and (unknown := sorted(value.keys() - cls.model_fields.keys())):
            raise ValueError(f"{unknown[0]!r} is no number of the ranking; these are: {', '.join(cls.model_fields)}")
        return value

    @property
    def changed(self) -> dict[str, float]:
        """The numbers that are not the defaults."""
        return {name: value for name, value in self if value != type(self).model_fields[name].default}


NOT_STORABLE = frozenset(
    {
        "home",
        "secrets_dir",
        "port",
        "dagster_port",
        "dagster_url",
        "dagster_link",
        "service_link",
        "code_port",
        "bind",
        "api_token",
        "allowed_hosts",
        "lock_env",
        "openai_api_key",
        "anthropic_api_key",
        "voyage_api_key",
        "gemini_api_key",
        "store",
        "mongo_uri",
        "mongo_database",
        "mongo_quantization",
        "mongo_wait_s",
        "embed_run_tags",
        "default_model",
    }
)
"""Needed before the store is open, or secret: environment and file only."""

SKIPPED_FOLDERS = (
    "build",
    "node_modules",
    "__pycache__",
    "venv",
    "site-packages",
    "dist",
    "target",
    "vendor",
    "third_party",
    "packages",
    "deps",
    "lib",
    "archive",
    "archives",
    "backup",
    "backups",
)
"""Beside hidden ones, of which only `.claude` and `.github` are read."""
CoreNumber = Annotated[int, Field(ge=0, le=65535)]
Cores = Annotated[
    tuple[CoreNumber, ...],
    NoDecode,
    BeforeValidator(split_texts),
    AfterValidator(lambda cores: tuple(dict.fromkeys(cores))),
]
Port = Annotated[int, Field(ge=1, le=65535)]
_BASE_URL = r"^(https?://\S+[^\s/])?$"


def claude_projects_dir() -> Path:
    """Where Claude Code keeps its logs on this machine."""
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"


class Settings(LlmSettings):
    """All settings. Each field's description is its row in docs/reference/settings.md."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True)

    home: Path = Field(
        default_factory=default_home,
        description="Folder of everything that Anamnesis writes; read from the environment only",
    )
    secrets_dir: Path = Field(
        Path("/run/secrets"),
        description="Folder of secrets, each in a file `anamnesis_<name>`, as containers receive them",
    )
    store: Literal["sqlite", "mongo"] = Field(
        "sqlite",
        description="Store of the memory: a file in the home, or MongoDB (Atlas or Atlas Local, as a replica set)",
    )
    mongo_uri: SecretStr = Field(
        SecretStr("mongodb://127.0.0.1:5438/?directConnection=true"),
        description="Connection string of MongoDB",
    )
    mongo_database: str = Field(
        "anamnesis", pattern=r"^[A-Za-z0-9_-]{1,38}$", description="Name of the MongoDB database"
    )
    mongo_quantization: Literal["none", "scalar", "binary"] = Field(
        "none",
        description="Quantization of MongoDB's vector indexes: none, 8 bits (`scalar`) or 1 bit (`binary`) a number",
    )
    mongo_wait_s: int = Field(60, ge=0, le=3600, description="Max wait at start for a primary of MongoDB, in seconds")
    log_roots: Annotated[tuple[Path, ...], NoDecode] = Field(
        default_factory=lambda: (claude_projects_dir(),),
        description="Folders that hold Claude Code's project folders, separated by `:`",
    )
    machine: str = Field(
        default_factory=socket.gethostname, min_length=1, max_length=60, description="Name of this machine in results"
    )
    port: Port = Field(3010, description="Port of the HTTP service")
    dagster_port: Port = Field(3000, description="Port of the Dagster UI")
    dagster_url: str = Field(
        "",
        pattern=_BASE_URL,
        description="Base URL at which the service reaches Dagster, if not on this host (in containers)",
    )
    dagster_link: str = Field(
        "",
        pattern=_BASE_URL,
        description="Base URL of the Dagster UI in links for a browser, if not `dagster_port` of this host",
    )
    service_link: str = Field(
        "",
        pattern=_BASE_URL,
        description="Base URL of the pages in links from Dagster, if not `bind` and `port`",
    )
    code_port: Port = Field(3011, description="Port of the Dagster code server (loopback only)")
    bind: str = Field(
        "127.0.0.1",
        description="Address on which the HTTP service listens; any other than loopback requires `api_token`",
    )
    api_token: SecretStr | None = Field(
        None, validate_default=True, description="Bearer token that every route except `/health` requires, if set"
    )
    allowed_hosts: Texts = Field(
        (), description="Host names besides loopback that requests may name in `Host`, separated by `,`"
    )
    default_model: str = Field(
        MINILM,
        min_length=1,
        description="Embedding model of a new memory if `model` is not set; the container image sets it",
    )
    model: str = Field(
        default_factory=lambda given: given["default_model"],
        min_length=1,
        description="Embedding model: `all-MiniLM-L6-v2`, a sentence-transformers id or path, or a model of a service",
    )
    precision: Literal["auto", "bf16", "fp32"] = Field(
        "auto", description="Arithmetic of the embedding model; `auto` uses bf16 if the processor or GPU supports it"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Device of the embedding model; `auto` uses a GPU if there is one"
    )
    token_vectors: bool = Field(
        True, description="Store vectors of single words in new spaces too: better ranking, about 2.5 KB more a passage"
    )
    rerank_model: str = Field(
        "",
        description="Cross-encoder that reorders the first hits of a search: a sentence-transformers id or path; "
        "empty: none",
    )
    switch: Literal["auto", "ask"] = Field(
        "auto",
        description="When a complete space answers searches: at once (`auto`), or after `anamnesis model use` (`ask`)",
    )
    embed_cpu_pct: int = Field(
        100, ge=1, le=100, description="Share of the CPU cores that embedding is pinned to, in percent"
    )
    embed_cores: Cores = Field(
        (), description="CPU cores that embedding is pinned to, separated by `,`; overrides `embed_cpu_pct`"
    )
    embed_queue_max: int = Field(
        64, ge=1, le=10_000, description="Max embedding calls queued in the service; it answers 429 beyond that"
    )
    checkpoint_every: int = Field(25, ge=1, le=10_000, description="Episodes embedded between two checkpoints")
    embed_run_tags: dict[str, str] = Field(
        {}, description="Dagster tags of every run that embeds, as JSON; on Kubernetes they select a GPU node"
    )
    crawl_interval_s: int = Field(
        300,
        ge=MIN_INTERVAL_S,
        le=MAX_INTERVAL_S,
        title="Poll every",
        description="Default polling interval of a source, in seconds",
    )
    crawl_skip: Texts = Field(
        SKIPPED_FOLDERS, description="Folders without documents worth reading, by name or glob, separated by `,`"
    )
    ingest_schedule: Literal["disabled", "30min", "1h", "2h", "6h", "nightly"] = Field(
        "nightly",
        title="Schedule",
        description="Schedule of the full ingest of all sources; new data of a source is ingested in any case",
    )
    ingest_hour: int = Field(5, ge=0, le=23, title="Hour", description="Hour of the nightly ingest, in `timezone`")
    timezone: str = Field(
        "UTC",
        title="Time zone",
        description="Time zone of schedules and of the days that a query names, e.g. `Europe/Berlin`",
    )
    consolidate_schedule: Literal["disabled", "30min", "1h", "2h", "6h", "nightly"] = Field(
        "nightly",
        description="Schedule of consolidation, which supersedes episodes that a later one of their session repeats",
    )
    consolidate_hour: int = Field(
        6, ge=0, le=23, description="Hour of the nightly consolidation and of the daily map, in `timezone`"
    )
    consolidate_cosine: float = Field(
        0.95, ge=0.5, le=1, description="Min cosine of two passages of a session that count as repeated"
    )
    merge_cosine: float = Field(
        0.84, ge=0.5, le=1, description="Min cosine of episodes of different origin that are proposed for a merge"
    )
    dream_auto: Texts = Field(
        (),
        title="Accepted automatically",
        description="Kinds of proposals accepted as soon as they are made, separated by `,`; each can be undone. "
        f"Allowed: {', '.join(sorted(UNDONE_EXACTLY))}",
    )
    dream_off: Texts = Field(
        (),
        title="Not proposed",
        description=f"Kinds of proposals that are not made, separated by `,`, of: {', '.join(sorted(Kind))}",
    )
    idle_minutes: int = Field(
        30, ge=1, le=1440, description="Minutes without a new message after which an open exchange is closed"
    )
    private_projects: Texts = Field(
        (),
        title="Private projects",
        description="Projects hidden unless named, whose text no LLM on another machine receives; separated by `,`",
    )
    ranking: Annotated[Ranking, NoDecode] = Field(
        Ranking.model_validate({}),
        description="Numbers of the ranking that are not the defaults, e.g. `rrf_k=40,company=0.3`; in `config.toml` a "
        "table `[ranking]`",
    )
    query_log: bool = Field(
        True,
        description="Store searches (masked, for 90 days) for `anamnesis queries`; never those of private projects",
    )
    local_only: bool = Field(False, description="Refuse every model download and every call to another machine")
    lock_env: bool = Field(False, description="Let environment and `config.toml` override stored settings")

    @field_validator("dream_auto", "dream_off")
    @classmethod
    def _known_kinds(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        allowed = UNDONE_EXACTLY if info.field_name == "dream_auto" else frozenset(Kind)
        for name in value:
            if name not in allowed:
                raise ValueError(f"{name!r} must be one of {', '.join(sorted(allowed))}")
        return value

    @field_validator("log_roots", mode="before")
    @classmethod
    def _split_paths(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [piece for piece in value.split(os.pathsep) if piece]
        if not isinstance(value, list | tuple) or not all(isinstance(piece, str | Path) for piece in value):
            raise ValueError("must be folders, as a list or separated by `:`")
        return tuple(Path(piece).expanduser().absolute() for piece in value)

    @field_validator("api_token")
    @classmethod
    def _token_for_open_bind(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        """Other machines reach the service only with a token."""
        if not value and not _is_loopback(info.data.get("bind", "127.0.0.1")):
            raise ValueError(
                f"{ENV_PREFIX}BIND = {info.data['bind']!r} is open to other machines, which needs a token: set "
                f"{ENV_PREFIX}API_TOKEN to a long random text, or leave {ENV_PREFIX}BIND at 127.0.0.1"
            )
        return value

    @field_validator("home", mode="after")
    @classmethod
    def _absolute_home(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError) as exc:
            raise ValueError("not a time zone name; try e.g. 'UTC' or 'Europe/Berlin'") from exc
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load` hands in, then the environment, then files of secrets."""
        return (init_settings, env_settings, file_secret_settings)

    @property
    def has_store(self) -> bool:
        """Whether there may be a memory to read; with MongoDB the server alone knows."""
        return self.store == "mongo" or os.path.exists(self.database)

    @property
    def follows_default_model(self) -> bool:
        """Whether a `default_model` is named, and no `model`."""
        return "default_model" in self.model_fields_set and "model" not in self.model_fields_set

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.home / "anamnesis.db"

    @property
    def archive_dir(self) -> Path:
        """Compressed, masked copies of every log line."""
        return self.home / "archive"

    @property
    def index_dir(self) -> Path:
        """Derived vector index files; safe to delete."""
        return self.home / "index"

    @property
    def topics_dir(self) -> Path:
        """Folder of the topics of projects that have no memory of Claude Code, with a folder for each."""
        return self.home / "topics"

    @property
    def dagster_home(self) -> Path:
        """Dagster's own storage."""
        return self.home / "dagster"

    @property
    def logs_dir(self) -> Path:
        """Logs of the supervised processes."""
        return self.home / "logs"


def reachable_host(bind: str) -> str:
    """The address under which a service bound to `bind` answers on this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)  # noqa: S104


def sidecar_url(settings: Settings) -> str:
    """Base address of the sidecar."""
    host = reachable_host(settings.bind)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def claude_api_key(settings: Settings) -> str | None:
    """The Claude API's key: the setting, else where Anthropic's own library looks for it."""
    key = settings.anthropic_api_key
    return key.get_secret_value() if key else os.environ.get("ANTHROPIC_API_KEY") or None


@dataclass(frozen=True, slots=True)
class Origin:
    """One setting as `anamnesis config` shows it. `origin` is `stored`, `environment`, `secret`, `file` or
    `default`.
    """

    name: str
    value: Any
    origin: str
    description: str


def load(stored: Mapping[str, Any] | None = None) -> Settings:
    """Settings from store, environment, file and defaults, in that order.

    :param stored: name -> value as read from the store; None before it is open.
    :raises BadSetting: a value is refused; the text names the setting, the value's place and what is allowed.
    """
    home, names = chosen_home(), Settings.model_fields
    file = read_file(home / "config.toml", names)
    secrets_dir = chosen_secrets_dir(names["secrets_dir"].default)
    environment = in_environment(names)
    locked = _truthy(os.environ["ANAMNESIS_LOCK_ENV"]) if "lock_env" in environment else file.get("lock_env") is True
    secrets = in_secret_files(secrets_dir, names)
    environment |= secrets
    usable = {name: value for name, value in (stored or {}).items() if name in names and name not in NOT_STORABLE}
    if locked:
        usable = {name: value for name, value in usable.items() if name not in environment and name not in file}
    given = {name: value for name, value in file.items() if name not in environment} | usable
    folder = secrets_dir or Path()
    seen = [(folder / f"{ENV_PREFIX}{name}".lower()).stat() for name in sorted(secrets)]
    around = (*sorted(os.environ.items()), socket.gethostname(), *((stat.st_mtime_ns, stat.st_ino) for stat in seen))
    try:
        return _made(json.dumps(given, sort_keys=True, default=str), home, secrets_dir, around)
    except ValidationError as exc:
        raise BadSetting(_explain(exc, usable, file)) from exc


@lru_cache(maxsize=4)
def _made(given: str, home: Path, secrets_dir: Path | None, around: tuple[object, ...]) -> Settings:
    """Settings from these values, as JSON, and from what is around: made once, since every search asks for them and
    making them takes 5 ms.

    :param around: what else they depend on: the environment, the name of the machine, and files of secrets as they are.
    """
    return Settings(**{**json.loads(given), "home": home, "_secrets_dir": secrets_dir})


def overridden(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """The settings with other values for one run.

    :param given: name -> value.
    :raises BadSetting: a value is refused; the text names the setting, the value and what is allowed.
    """
    try:
        return Settings(**{**dict(settings), **given})
    except ValidationError as exc:
        raise BadSetting(_explain(exc, {}, {}, given)) from exc


def words_of(name: str) -> Any:
    """Return a field of a request that has the description of a setting."""
    return Field(description=Settings.model_fields[name].description)


def limits_of(name: str) -> Any:
    """Return a field of a request that has the least and the greatest value of a setting."""
    rules = Settings.model_fields[name].metadata
    return Field(**{key: getattr(rule, key) for rule in rules for key in ("ge", "le") if hasattr(rule, key)})


def origins(stored: Mapping[str, Any]) -> list[Origin]:
    """Every setting with its value and where that came from; secrets as `***`."""
    settings, names = load(stored), Settings.model_fields
    file = read_file(settings.home / "config.toml", names)
    environment = in_environment(names)
    secrets = in_secret_files(chosen_secrets_dir(names["secrets_dir"].default), names)
    locked = environment | secrets | file.keys() if settings.lock_env else set()
    wins = (
        ("stored", stored.keys() - NOT_STORABLE - locked),
        ("environment", environment),
        ("secret", secrets),
        ("file", file),
    )
    return [
        each
        for name, info in names.items()
        for origin in [next((origin for origin, those in wins if name in those), "default")]
        for each in (
            [Origin(name, _shown(name, getattr(settings, name)), origin, info.description or "")]
            if name != "ranking"
            else _numbers_of(settings.ranking, origin)
        )
    ]


def _numbers_of(ranking: Ranking, origin: str) -> list[Origin]:
    """Each number of the ranking; those that are not given are defaults."""
    return [
        Origin(
            f"ranking.{name}",
            value,
            origin if name in ranking.model_fields_set else "default",
            Ranking.model_fields[name].description or "",
        )
        for name, value in ranking
    ]


def _shown(name: str, value: Any) -> Any:
    """A secret as `***`, the address of MongoDB without its secrets."""
    if not isinstance(value, SecretStr):
        return value
    return masked(value.get_secret_value()) if name == "mongo_uri" else MASK


def check_storable(name: str, text: str) -> Any:
    """The JSON value to store for `anamnesis config set NAME TEXT`.

    :raises BadSetting: unknown name, a setting that cannot be stored, or a value it cannot have.
    """
    if (number := name.removeprefix("ranking.")) in Ranking.model_fields:
        raise BadSetting(f"the numbers of the ranking are set together: ranking {number}={text}")
    if name not in Settings.model_fields:
        raise BadSetting(f"{name!r} is not a setting; the settings are: {_known_names()}")
    if name in NOT_STORABLE:
        why = "it is a secret, or read before the store is open"
        raise BadSetting(f"{name} cannot be stored, as {why}; set {ENV_PREFIX}{name.upper()} instead")
    given: dict[str, Any] = {name: text}
    try:
        value = getattr(_beside(given), name)
    except ValidationError as exc:
        raise BadSetting(_explain(exc, {}, {}, given)) from exc
    if isinstance(value, Ranking):
        return value.model_dump(exclude_unset=True)
    return [str(item) for item in value] if isinstance(value, tuple) else value


def _beside(given: Mapping[str, Any]) -> Settings:
    """What is given, with what stands outside the store: one setting may want another, an open address a token.

    :raises ValidationError: a value is refused.
    """
    home, names = chosen_home(), Settings.model_fields
    secrets_dir = chosen_secrets_dir(names["secrets_dir"].default)
    elsewhere = in_environment(names) | in_secret_files(secrets_dir, names)
    file = {name: value for name, value in read_file(home / "config.toml", names).items() if name not in elsewhere}
    return Settings(**{**file, **given, "home": home, "_secrets_dir": secrets_dir})


def _known_names() -> str:
    return ", ".join(sorted(Settings.model_fields))


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _truthy(text: str) -> bool:
    return text.strip().lower() in {"1", "true", "yes", "on"}


def _explain(
    exc: ValidationError, stored: Mapping[str, Any], file: Mapping[str, Any], typed: Mapping[str, Any] | None = None
) -> str:
    """What is refused, named as the place calls it where the value stands.

    :param typed: name -> value given just now. If it is refused, only that is reported.
    """
    errors = exc.errors(include_url=False, include_context=False)
    typed = typed or {}
    lines = []
    for error in [error for error in errors if error["loc"] and error["loc"][0] in typed] or errors:
        name = str(error["loc"][0]) if error["loc"] else "?"
        place = f"stored setting {name}" if name in stored else f"config.toml: {name}" if name in file else None
        place = name if name in typed else place or ENV_PREFIX + name.upper()
        place += "".join(f".{number}" for number in error["loc"][1:] if name == "ranking")
        shown = "***" if name.endswith(("_token", "_key", "_uri")) else repr(error.get("input"))
        lines.append(f"{place} = {shown}: {error['msg'].removeprefix('Value error, ')}")
    return "; ".join(lines)
