"""A service's embedding model, from the settings: whether it may be asked, and what asks it."""

import os
from collections.abc import Callable

from anamnesis_pipeline.embeddings.api_models import ApiModel
from anamnesis_pipeline.embeddings.base import EmbeddingPool
from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.steps.api_pool import ApiPool, Terms
from anamnesis_pipeline.steps.embedding_api import EmbeddingApi
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.summary_model import LlmBudget


def api_refusal(settings: Settings, model: ApiModel) -> BadSetting | None:
    """Why nothing may be sent to the service of a model; None: it may."""
    means = f"the embedding model {model.model_id} means that every text and every question is sent to {model.service}"
    if settings.local_only:
        return BadSetting(f"{means}, and local_only forbids that")
    if settings.private_projects:
        return BadSetting(f"{means}, and there are private_projects; use a model that runs here, or have none private")
    if settings.llm_daily_tokens is None and settings.llm_daily_dollars is None:
        return BadSetting(f"{means}, which costs money; set llm_daily_dollars or llm_daily_tokens")
    if not _key(settings, model.service):
        return BadSetting(f"{means}, which wants a key; set ANAMNESIS_EMBEDDING_API_KEY")
    return None


def _key(settings: Settings, service: str) -> str | None:
    """The key of a service that embeds: the setting, else where the service's own library looks for it."""
    key = settings.embedding_api_key
    return key.get_secret_value() if key else os.environ.get(f"{service.upper()}_API_KEY") or None


def open_api_pool(store: Store, space: Space, model: ApiModel, effective: Callable[[], Settings]) -> EmbeddingPool:
    """What stands for a pool where a service has the model.

    :param effective: reads the settings as they are now.
    :raises BadSetting: it may not be asked.
    """

    def terms() -> Terms:
        now = effective()
        return Terms(LlmBudget(now.llm_daily_tokens, now.llm_daily_dollars), api_refusal(now, model))

    settings = effective()
    if refusal := api_refusal(settings, model):
        raise refusal
    api = EmbeddingApi(model, _key(settings, model.service) or "", settings.embedding_api_url)
    return ApiPool(store, space.key, model, api, terms, settings.embed_queue_max)
