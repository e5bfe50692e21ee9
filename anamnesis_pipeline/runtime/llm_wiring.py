"""Builds the summary LLM from the settings, and chooses the default chat model: the summary model if one is configured,
else one that is available now. A library is imported on first use.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.embeddings.cores import available_cores, cores_for
from anamnesis_pipeline.errors import BadSetting, LlmRefused
from anamnesis_pipeline.llm.factory import Offer, open_chat, open_provider
from anamnesis_pipeline.llm.prices import DEFAULT_MODELS
from anamnesis_pipeline.llm.provider import METERED, LlmOptions
from anamnesis_pipeline.model import LlmBudget
from anamnesis_pipeline.parsing.claude_logs.value import WEIGHTS
from anamnesis_pipeline.pipeline.llm_choice import Llm, LlmRules
from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.settings import Settings

_EMBEDS = re.compile(r"embed|minilm|bge|paraphrase", re.IGNORECASE)
"""Names of embedding models, which Ollama lists too but which cannot chat."""


def open_llm(settings: Settings) -> Llm:
    """Return the LLM that writes summaries, with its limits. It is opened on first use."""
    kind = settings.summarizer
    rules = LlmRules(
        min_chars=settings.summary_min_chars,
        min_value=settings.summary_min_value,
        weights={**WEIGHTS, **settings.value_weights},
        budget=LlmBudget(settings.llm_daily_tokens, settings.llm_daily_dollars),
        requests_per_minute=settings.llm_requests_per_minute,
        batch_min=settings.llm_batch_min,
        private_projects=settings.private_projects,
        local_only=settings.local_only,
    )
    return Llm(
        None if kind == "none" else lambda: open_provider(kind, backend_options(settings)),
        rules,
        mask=lambda reply: open_redactor(settings).mask_line(reply),
    )


def backend_options(settings: Settings) -> LlmOptions:
    """Return the options of the LLM's backend.

    :raises BadSetting: the LLM is configured to run on a missing core.
    """
    openai_key = settings.openai_api_key
    return LlmOptions(
        model=settings.summary_model,
        timeout_s=float(settings.summary_timeout_s),
        claude_command=settings.claude_command,
        claude_host=settings.claude_host,
        ollama_urls=settings.ollama_urls,
        ollama_threads=_ollama_threads(settings),
        openai_url=settings.openai_url,
        openai_api_key=openai_key.get_secret_value() if openai_key else None,
        anthropic_api_key=settings_module.claude_api_key(settings),
        anthropic_url=settings.anthropic_url,
        input_price=settings.llm_input_price,
        output_price=settings.llm_output_price,
    )


def _ollama_threads(settings: Settings) -> int | None:
    """Return as many threads as embedding has cores, if these are limited."""
    is_limited = bool(settings.embed_cores) or settings.embed_cpu_pct < 100
    if not is_limited or settings.summarizer != "ollama":
        return None
    return len(cores_for(settings.embed_cpu_pct, settings.embed_cores, available_cores()))


def llm_address(settings: Settings) -> str:
    """Return the address of the LLM that writes summaries, without user, password and query."""
    match settings.summarizer:
        case "none":
            return ""
        case "claude_cli":
            return settings.claude_host or "this machine"
        case "ollama":
            return ", ".join(map(_plain, settings.ollama_urls))
        case "openai":
            return _plain(settings.openai_url)
        case "anthropic":
            return _plain(settings.anthropic_url) or "the Claude API"


def _plain(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def llm_key(settings: Settings) -> str:
    """Return whether the summary LLM has a key: `present` or `absent`."""
    keys = {"anthropic": settings_module.claude_api_key(settings), "openai": settings.openai_api_key}
    return "present" if keys.get(settings.summarizer) else "absent"


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend and one of its models."""

    backend: str
    model: str


def default_choice(settings: Settings, found: Sequence[Offer]) -> Choice:
    """Return the default: the configured summary LLM, else the first available model.

    :param found: all available backends; may be empty when an LLM writes the summaries.
    """
    wanted = wanted_choice(settings)
    return wanted if settings.summarizer != "none" else offered_choice(settings, found) or wanted


def wanted_choice(settings: Settings) -> Choice:
    """Return the preferred choice, available or not: the summary LLM, else Ollama (free and local). Pure."""
    kind = settings.summarizer if settings.summarizer != "none" else "ollama"
    return Choice(kind, configured_model(settings, kind) or DEFAULT_MODELS.get(kind, ""))


def configured_model(settings: Settings, kind: str) -> str:
    """Return the model configured for a backend, "" if none. Pure."""
    return settings.summary_model if settings.summarizer == kind else ""


def offered_choice(settings: Settings, found: Sequence[Offer]) -> Choice | None:
    """Return the first allowed model that answers now, the preferred one first; None if there is none."""
    options = backend_options(settings)

    def may(choice: Choice) -> bool:
        try:
            backend = open_chat(choice.backend, choice.model, options)
        except (BadSetting, LlmRefused):
            return False
        return backend.is_local or not settings.local_only

    return first_choice(found, wanted_choice(settings), may)


def first_choice(found: Sequence[Offer], wanted: Choice, may: Callable[[Choice], bool]) -> Choice | None:
    """Return the preferred model, else another of its backend, else one of another backend; backends paid by the token
    come last. Pure.

    :param may: returns whether a choice is allowed to answer.
    """

    def order(pair: tuple[Offer, str]) -> tuple[bool, ...]:
        offer, model = pair
        is_wanted = wanted.model in (model, model.removesuffix(":latest"))
        return offer.backend != wanted.backend, offer.cost == METERED, not is_wanted, bool(_EMBEDS.search(model))

    there = [(offer, model) for offer in found if offer.reachable for model in offer.models]
    choices = (Choice(offer.backend, model) for offer, model in sorted(there, key=order))
    return next(filter(may, choices), None)
