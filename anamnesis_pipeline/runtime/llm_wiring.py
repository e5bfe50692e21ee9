"""Builds the summary LLM from the settings. Its library is imported on first use."""

from urllib.parse import urlsplit

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.embeddings.cores import available_cores, cores_for
from anamnesis_pipeline.llm.factory import open_provider
from anamnesis_pipeline.llm.provider import LlmOptions
from anamnesis_pipeline.model import LlmBudget
from anamnesis_pipeline.parsing.claude_logs.value import WEIGHTS
from anamnesis_pipeline.pipeline.llm_choice import Llm, LlmRules
from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.settings import Settings


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
