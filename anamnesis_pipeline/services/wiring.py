"""Builds objects from settings; only this module names backends. Imports late, so unused ones cost nothing."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.embeddings.api_models import api_model
from anamnesis_pipeline.embeddings.base import Embedded, Embedder, EmbeddingPool, Role
from anamnesis_pipeline.embeddings.cores import Priority, available_cores, cores_for
from anamnesis_pipeline.embeddings.models import (
    MINILM,
    ModelFiles,
    choose_precision,
    find_cross_encoder,
    find_model,
)
from anamnesis_pipeline.embeddings.pieces import PieceCounter, minilm_pieces
from anamnesis_pipeline.embeddings.pinned_pool import LoadedModel, PinnedPool, PoolModel
from anamnesis_pipeline.embeddings.precision import choose_device
from anamnesis_pipeline.embeddings.reranker import CrossEncoding, Reranker
from anamnesis_pipeline.embeddings.space_models import SpaceModels
from anamnesis_pipeline.embeddings.token_vectors import Projection
from anamnesis_pipeline.errors import DimensionMismatch, UnknownModel
from anamnesis_pipeline.llm import extractive
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.pipeline.archived import ArchivedLines
from anamnesis_pipeline.pipeline.crawl_documents import DocumentSelection
from anamnesis_pipeline.pipeline.daily import TIME_SETTINGS
from anamnesis_pipeline.pipeline.index import building_space, ensure_space, space_projection
from anamnesis_pipeline.pipeline.llm_choice import Llm
from anamnesis_pipeline.pipeline.reembed_state import WANTED_MODEL
from anamnesis_pipeline.pipeline.source_specs import private_sources
from anamnesis_pipeline.runtime.api_wiring import api_refusal, open_api_pool
from anamnesis_pipeline.runtime.crawler_wiring import (
    ProjectLabels,
    RemoteHosts,
    open_hosts,
    remote_host,
)
from anamnesis_pipeline.runtime.home_wiring import make_private, open_archive, open_observers, open_redactor
from anamnesis_pipeline.runtime.llm_wiring import llm_address, llm_key, open_llm
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.services.dagster.api import DagsterApi, open_dagster
from anamnesis_pipeline.services.forget import Forgetter
from anamnesis_pipeline.services.ingest import Pipeline
from anamnesis_pipeline.services.merging import Merger, MergeRules
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.recording import Recorder
from anamnesis_pipeline.services.store_copies import check_whole, settle
from anamnesis_pipeline.services.stored_copies import StoredCopies
from anamnesis_pipeline.services.topic_traces import TopicTraces
from anamnesis_pipeline.services.topics import open_topics
from anamnesis_pipeline.services.uploads import Uploads
from anamnesis_pipeline.settings import Ranking, Settings
from anamnesis_pipeline.sources.discovery import Discovery, discover
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo.address import hosts_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

CONFIG_PREFIX = "config."
"""Prefix of stored settings."""
SHOWN_SETTINGS = (
    "model",
    "device",
    "precision",
    "embed_cpu_pct",
    "embed_cores",
    "checkpoint_every",
    "summarizer",
    "summary_model",
    "summary_timeout_s",
    "llm_daily_tokens",
    "llm_daily_dollars",
    "llm_requests_per_minute",
)
"""Settings that are fields of Dagster's resources, read when it loads the code location."""


def loaded_values(settings: Settings) -> dict[str, Any]:
    """Return the settings used in Dagster's definitions, without secrets."""
    values = {name: getattr(settings, name) for name in (*TIME_SETTINGS, *SHOWN_SETTINGS)}
    return {**values, "address": llm_address(settings), "api_key": llm_key(settings)}


def open_store(settings: Settings) -> Store:
    """Open the deployment's store for use, migrated to this version.

    :raises StoreCorrupt: the file, or the database, is damaged or newer than this version.
    :raises GiveUp: it is an unfinished copy.
    """
    return _opened(settings, settle)


def open_to_read(settings: Settings) -> Store:
    """Open the store as `open_store` does, without adopting it: an unused copy can still be brought up to date, which
    reverts its search counters.
    """
    return _opened(settings, check_whole)


def _opened(settings: Settings, accept: Callable[[Store, str], object]) -> Store:
    store = open_copy(settings)
    try:
        accept(store, store_place(settings))
    except BaseException:
        store.close()
        raise
    return store


def store_place(settings: Settings) -> str:
    """Return the store's location, in words, without secrets."""
    if settings.store == "sqlite":
        return str(settings.database)
    return f"MongoDB {hosts_of(settings.mongo_uri.get_secret_value())}/{settings.mongo_database}"


def impatient(settings: Settings, wait_s: int) -> Settings:
    """Return the settings with `mongo_wait_s` capped, so that callers fail fast."""
    return settings.model_copy(update={"mongo_wait_s": min(settings.mongo_wait_s, wait_s)})


def open_copy(settings: Settings) -> Store:
    """Open the store as a copy target: it may be an unfinished copy, and stays marked as one.

    :raises StoreCorrupt: the file, or the database, is damaged or newer than this version.
    """
    make_private(settings.home)
    match settings.store:
        case "sqlite":
            from anamnesis_pipeline.store.sqlite.opening import open_sqlite

            return open_sqlite(settings.database, settings.index_dir)
        case "mongo":
            from anamnesis_pipeline.store.mongo.opening import open_mongo

            return open_mongo(
                settings.mongo_uri.get_secret_value(),
                settings.mongo_database,
                quantization=settings.mongo_quantization,
                wait_s=float(settings.mongo_wait_s),
            )


def stored_settings(store: Store) -> dict[str, Any]:
    """Return name -> value of settings stored by `anamnesis config set`."""
    stored = store.settings.all(CONFIG_PREFIX)
    return {name.removeprefix(CONFIG_PREFIX): value for name, value in stored.items()}


def effective_settings(store: Store) -> Settings:
    """Return the settings with stored ones applied. If only `default_model` names a model, a memory with a space keeps
    that space's model.
    """
    settings = settings_module.load(stored_settings(store))
    if not settings.follows_default_model:
        return settings
    kept = building_space(store) or store.spaces.active()
    return settings.model_copy(update={"model": kept.model_id}) if kept else settings


def default_model_note(store: Store) -> str:
    """Return why `default_model` does not answer searches, and how to switch; empty if it does, or a model was
    chosen.
    """
    settings, active = settings_module.load(stored_settings(store)), store.spaces.active()
    if active is None or active.model_id == settings.default_model or not settings.follows_default_model:
        return ""
    return (
        f"the default model {settings.default_model} is for new memories; this one began with {active.model_id} and "
        f"keeps it. Move with: anamnesis model use {settings.default_model}"
    )


def open_pieces() -> PieceCounter:
    """Return the tokenizer that measures passages."""
    return minilm_pieces()


def wanted_space(settings: Settings, store: Store, *, downloads: bool = True) -> Space:
    """Return the space of the configured model, added and begun when it is new; see `ensure_space`.

    Finding a model may take a download; a choice made meanwhile is honoured. If the `default_model` of a new memory is
    unavailable, use MiniLM, which comes with the installation.
    :param downloads: False: use only local files, and leave the choice of MiniLM to a caller that downloads.
    :raises UnknownModel: no such model.
    """
    stored, is_new = store.settings.get(WANTED_MODEL), settings.follows_default_model
    try:
        files = model_files(settings, settings.model, store, downloads=downloads)
    except UnknownModel as exc:
        if not is_new or not downloads:
            raise
        log.warning("%s. This new memory is embedded with %s instead", exc, MINILM)
        files = model_files(settings, MINILM, store)
    if store.settings.get(WANTED_MODEL) != stored or (is_new and store.spaces.active() is not None):
        return wanted_space(effective_settings(store), store, downloads=downloads)
    return ensure_space(store, files, wanted_precision(settings, files))


def _space_at_start(store: Store) -> Space:
    """Return `wanted_space`; log which model answers, and why it is not another."""
    space = wanted_space(effective_settings(store), store)
    active = store.spaces.active() or space
    note = default_model_note(store)
    log.info("Embedding model: %s (%s dimensions)%s", active.model_id, active.dim, f"; {note}" if note else "")
    return space


def wanted_precision(settings: Settings, files: ModelFiles) -> str:
    """Return the precision of a model; fp32 for a service, whose vectors are used unchanged."""
    return "fp32" if api_model(files.model_id) else choose_precision(settings.precision, settings.device)


def what_is_private(store: Store) -> Private:
    """Return what is private as configured now: hidden by default, and sent to no service."""
    settings = effective_settings(store)
    return Private(private_sources(store, settings.machine), settings.private_projects)


def model_files(settings: Settings, model_id: str, store: Store | None = None, *, downloads: bool = True) -> ModelFiles:
    """Return the files of a model with the settings for new spaces, or the description of a hosted model.

    :param downloads: False: use only local files, regardless of `local_only`.
    :param store: tells which sources are private; None: there is none yet.
    :raises UnknownModel: no such model.
    :raises BadSetting: it is a service's, and may not be used.
    """
    if known := api_model(model_id):
        if refusal := api_refusal(settings, known, what_is_private(store).keys if store else ()):
            raise refusal
        return known.files()
    files = find_model(model_id, local_only=settings.local_only or not downloads)
    return files if settings.token_vectors else replace(files, token_dims=0)


def open_pool(
    settings: Settings,
    space: Space,
    *,
    has_vectors: bool = False,
    priority: Priority = Priority.QUERY,
    on_loaded: Callable[[LoadedModel], None] = lambda model: None,
    projection: Callable[[LoadedModel], Projection | None] = lambda model: None,
) -> PinnedPool:
    """Return a pool for the model of a space, not loaded yet.

    :param has_vectors: the space's precision is that of existing vectors, not merely a choice.
    :param priority: of its workers, beside other processes on the same cores.
    :param on_loaded: receives the loaded model on the thread that loads the pool; it may record precision and fidelity,
        which are then not measured again.
    :param projection: of the space's token vectors; see PoolModel.
    :raises UnknownModel: the model's files are unavailable.
    :raises DimensionMismatch: the files differ from those that made the space's vectors.
    :raises BadSetting: a configured core or GPU is missing.
    """
    files = find_model(space.model_id, local_only=settings.local_only)
    if files.space(space.generation).key != space.key:
        raise DimensionMismatch(
            f"the files of {space.model_id} at {files.path} are not those that made the {space.dim}-d vectors of space "
            f"{space.key}; put the former ones back, or let `anamnesis up` embed everything with these"
        )
    of_vectors = space.precision if has_vectors else None
    precision = choose_precision(settings.precision, settings.device, of_vectors)
    fidelity = space.fidelity if space.precision == precision else None
    device = choose_device(settings.device)

    def load() -> LoadedModel:
        from anamnesis_pipeline.embeddings.transformer_model import load_model

        return load_model(files, precision, device, fidelity)

    def on_worker() -> None:
        from anamnesis_pipeline.embeddings.transformer_model import use_one_thread

        use_one_thread()

    model = PoolModel(
        files.model_id,
        files.dim,
        load,
        on_worker,
        files.query_prefix,
        files.passage_prefix,
        device=device,
        on_loaded=on_loaded,
        projection=projection,
    )

    return PinnedPool(model, configured_cores(settings), queue_max=settings.embed_queue_max, priority=priority)


def open_pool_of(
    store: Store, space: Space, *, priority: Priority, settings_of: Callable[[Store], Settings] = effective_settings
) -> EmbeddingPool:
    """Return a pool for a space of this store, by the current settings. If they do not set a precision, use that of the
    space's vectors; for a space without vectors, record the chosen one. Raises as `open_pool` does.

    :param settings_of: reads the store's current settings; a run may override some.
    """
    settings = settings_of(store)
    if known := api_model(space.model_id):
        redactor = open_redactor(settings)
        return open_api_pool(
            store,
            space,
            known,
            lambda: settings_of(store),
            lambda: what_is_private(store).keys,
            lambda text: redactor.mask_text(text)[0],
        )

    def note_precision(model: LoadedModel) -> None:
        store.spaces.record_precision(space.key, model.precision, model.fidelity)

    return open_pool(
        settings,
        space,
        has_vectors=store.vectors.count(space.key) > 0,
        priority=priority,
        on_loaded=note_precision,
        projection=partial(space_projection, store, space),
    )


def open_reranker(settings: Settings, cores: Callable[[], Sequence[int]]) -> Reranker | None:
    """Return the reranker of the settings, not loaded yet; None if they name no model.

    :param cores: reads the cores that embedding is pinned to.
    """
    name = settings.rerank_model
    if not name:
        return None

    def load() -> CrossEncoding:
        from anamnesis_pipeline.embeddings.cross_encoder import CrossEncoderModel

        folder = find_cross_encoder(name, local_only=settings.local_only)
        return CrossEncoderModel(name, folder, choose_device(settings.device))

    return Reranker(name, load, cores)


def configured_cores(settings: Settings) -> list[int]:
    """Return the cores that embedding is pinned to.

    :raises BadSetting: a named core is not available to this process; the text lists those that are.
    """
    return cores_for(settings.embed_cpu_pct, settings.embed_cores, available_cores())


@dataclass(frozen=True, slots=True)
class Services:
    """Dependencies of the sidecar."""

    settings: Settings
    store: Store
    engine: Engine
    poster: EpisodeWriter
    pool: SpaceModels
    dagster: DagsterApi
    close: Callable[[], None]


def open_services(settings: Settings) -> Services:
    """Open the sidecar's dependencies. The model is not searched or loaded yet: it may need a download, and an unknown
    one must not prevent the start.
    """
    from anamnesis_pipeline.services.posted_vectors import PostedVectors

    store = open_store(settings)
    settings = effective_settings(store)

    models = SpaceModels(
        partial(open_pool_of, store, priority=Priority.QUERY),
        store.spaces.active,
        prepare=lambda: _space_at_start(store),
        exists=lambda key: any(space.key == key for space in store.spaces.all()),
        cores=lambda: configured_cores(effective_settings(store)),
    )

    def embedder_of(active: Space) -> tuple[Space, Embedder]:
        space = models.space_for(active)  # the space of the next search, even while a new model loads
        return space, _SpaceEmbedder(models, space)

    vectors = PostedVectors(store, embedder_of)
    reranker = open_reranker(settings, lambda: configured_cores(effective_settings(store)))
    if reranker is not None:
        reranker.load_in_background()

    def close() -> None:
        vectors.close()
        if reranker is not None:
            reranker.close()
        models.close()
        store.close()

    return Services(
        settings=settings,
        store=store,
        engine=Engine(
            store,
            models.embed_query,
            models.space_for,
            lambda: float(_as_it_is(store, settings, "summary_min_value")),
            lambda: ZoneInfo(_as_it_is(store, settings, "timezone")),
            lambda: what_is_private(store),
            reranker.scores if reranker is not None else None,
            lambda: ranking_numbers(store, settings),
        ),
        poster=EpisodeWriter(store, open_redactor(settings).mask_text, open_pieces(), vectors.add),
        pool=models,
        dagster=open_dagster(settings),
        close=close,
    )


def ranking_numbers(store: Store, settings: Settings) -> dict[str, float]:
    """Return the numbers of the ranking that are not the defaults, by name."""
    held = _as_it_is(store, settings, "ranking")
    return (held if isinstance(held, Ranking) else Ranking.model_validate(held)).changed


def _as_it_is(store: Store, settings: Settings, name: str) -> Any:
    """Return the current value of one setting; called for each search, so it reads only this one."""
    held = getattr(settings, name)
    return held if settings.lock_env else store.settings.get(f"{CONFIG_PREFIX}{name}", held)


class _SpaceEmbedder:
    """An `Embedder` for one space of a SpaceModels."""

    def __init__(self, models: SpaceModels, space: Space) -> None:
        self.model_id, self.dim = space.model_id, space.dim
        self._models, self._space = models, space

    def embed(self, texts: Sequence[str], role: Role) -> "NDArray[np.float32]":
        """Return the vectors of passages; queries are not supported."""
        return self._models.embed_passages(texts, self._space).vectors

    def embed_with_tokens(self, texts: Sequence[str], role: Role) -> Embedded:
        """Return the vectors and token vectors of passages; queries are not supported."""
        return self._models.embed_passages(texts, self._space)


def open_pipeline(settings: Settings, store: Store, remote: RemoteHosts = remote_host) -> Pipeline:
    """Return the source steps for this machine's logs and those of other machines.

    :param remote: opens other machines.
    """
    archive, hosts = open_archive(settings), open_hosts(settings, store, remote)
    return Pipeline(
        store=store,
        hosts=hosts,
        archive=archive,
        mask=open_redactor(settings).mask_line,
        archive_lines=ArchivedLines(store, archive),
        labels=ProjectLabels(hosts, store, remote),
        sure_labels=ProjectLabels(hosts, store, remote, must_answer=True),
        pieces=open_pieces(),
        idle_minutes=settings.idle_minutes,
        llm=open_llm_of(settings, store),
        selection=DocumentSelection(settings),
        observers=open_observers(settings),
    )


def open_llm_of(settings: Settings, store: Store) -> Llm:
    """Return the LLM that writes summaries; it gets no text of this store's private sources."""
    return replace(open_llm(settings), private_sources=lambda: what_is_private(store).keys)


def open_recorder(settings: Settings, store: Store, poster: EpisodeWriter) -> Recorder:
    """Return the recorder of exchanges. It extracts records from texts of any length, since a client requests it."""
    llm = open_llm(settings.model_copy(update={"summary_min_chars": 0}))
    return Recorder(store, poster, open_pieces(), llm, extractive.summarize)


def open_merger(settings: Settings, store: Store, poster: EpisodeWriter, **rules: int) -> Merger:
    """Return the merger of episodes of different origin, with the summary LLM.

    :param rules: fields of `MergeRules` other than the threshold, which is a setting.
    """
    llm = open_llm_of(settings, store)
    return Merger(store, llm, open_pieces(), poster, MergeRules(threshold=settings.merge_cosine, **rules))


def open_uploads(
    settings: Settings, store: Store, embed: Callable[[Sequence[str]], None] = lambda ids: None
) -> Uploads:
    """Return the uploads of this home.

    :param embed: embeds episodes now; else the pipeline does it later.
    """
    redactor = open_redactor(settings)
    edit = EpisodeWriter(store, redactor.mask_text, open_pieces(), None).patch
    add = open_pipeline(settings, store).add_document
    return Uploads(store, add, lambda text: redactor.mask_text(text)[0], edit, embed)


def open_forgetter(settings: Settings, store: Store) -> Forgetter:
    """Return the forgetter of this home, which removes text for good."""
    topics = TopicTraces(store, open_topics(settings), settings.machine)
    return open_pipeline(settings, store).forgetter(what_is_private(store), topics)


def open_copies(settings: Settings, store: Store) -> StoredCopies:
    """Return the finder of stored copies of this machine's files."""
    pipeline = open_pipeline(settings, store)
    return StoredCopies(store, pipeline.archive_lines, pipeline.mask, settings.machine)


def discover_sources(settings: Settings) -> Discovery:
    """Return the Claude project folders below the configured log roots."""
    return discover(LocalHost(settings.machine), [str(root) for root in settings.log_roots])
