"""Hosted embedding models from the settings: whether texts may be sent, and the client."""

import os
from collections.abc import Callable, Collection

from anamnesis_pipeline.embeddings.api_models import ApiModel, Service
from anamnesis_pipeline.embeddings.base import EmbeddingPool
from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.llm.endpoints import check_key, check_url
from anamnesis_pipeline.model import LlmBudget, Space
from anamnesis_pipeline.pipeline.api_pool import ApiPool, Terms
from anamnesis_pipeline.pipeline.embedding_api import EmbeddingApi
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store


def api_refusal(settings: Settings, model: ApiModel, private_sources: Collection[str] = ()) -> BadSetting | None:
    """Return why nothing may be sent to the service of a model; None: it may.

    :param private_sources: keys of the sources whose text stays on this machine.
    """
    means = f"the embedding model {model.model_id} means that every text and every question is sent to {model.service}"
    against = _against(settings, model, private_sources)
    return BadSetting(f"{means}, {against}") if against else None


def _against(settings: Settings, model: ApiModel, private_sources: Collection[str]) -> str:
    """Return the reason against sending texts; empty: none."""
    here = "use a model that runs here"
    named = ", ".join(sorted(private_sources)[:3]) + (", ..." if len(private_sources) > 3 else "")
    has_budget = settings.llm_daily_tokens is not None or settings.llm_daily_dollars is not None
    reasons = (
        (settings.local_only, "and local_only forbids that"),
        (settings.private_projects, f"and there are private_projects; {here}, or have none private"),
        (
            private_sources,
            f"and the text of sources that are private, or were when they were removed, stays here ({named}); {here}",
        ),
        (not has_budget, "which costs money; set llm_daily_dollars or llm_daily_tokens"),
        (not _key(settings, model.service), f"which wants a key; set ANAMNESIS_{_key_name(model.service).upper()}"),
    )
    return next((text for is_so, text in reasons if is_so), "") or _malformed(settings, model)


def _malformed(settings: Settings, model: ApiModel) -> str:
    try:
        _place(settings, model)
    except BadSetting as exc:
        return f"but {exc}"
    return ""


def _place(settings: Settings, model: ApiModel) -> tuple[str, str]:
    """Return the key and the base URL; empty: the service's default.

    :raises BadSetting: one is malformed.
    """
    url = settings.embedding_api_url
    key = check_key(_key_name(model.service), _key(settings, model.service) or "")
    return key, check_url("embedding_api_url", url) if url else ""


def _key_name(service: Service) -> str:
    return f"{service}_api_key"


def _key(settings: Settings, service: Service) -> str | None:
    """Return the API key of a service: the setting, else the variable of the service's own library. No service gets
    another's key: `openai_api_key` belongs to OpenAI only while `openai_url` is empty.
    """
    keys = {
        "voyage": settings.voyage_api_key,
        "openai": None if settings.openai_url else settings.openai_api_key,
        "gemini": settings.gemini_api_key,
    }
    key = keys[service]
    return key.get_secret_value() if key else os.environ.get(_key_name(service).upper()) or None


def open_api_pool(
    store: Store,
    space: Space,
    model: ApiModel,
    effective: Callable[[], Settings],
    private_sources: Callable[[], Collection[str]],
    mask: Callable[[str], str],
) -> EmbeddingPool:
    """Return an embedding pool that calls a service.

    :param effective: reads the current settings.
    :param private_sources: reads the keys of sources whose text stays on this machine.
    :param mask: applied to every text before it is sent.
    :raises BadSetting: nothing may be sent.
    """

    def terms() -> Terms:
        now = effective()
        budget = LlmBudget(now.llm_daily_tokens, now.llm_daily_dollars)
        return Terms(budget, now.llm_requests_per_minute, api_refusal(now, model, private_sources()))

    if refusal := terms().refusal:
        raise refusal
    settings = effective()
    api = EmbeddingApi(model, *_place(settings, model))
    return ApiPool(store, space.key, model, api, terms, mask, settings.embed_queue_max)
