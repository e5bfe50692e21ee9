"""Opens LLM providers by name, and checks which are available. Imports late, since libraries are slow to load."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

import anyio.to_thread

from anamnesis_pipeline.errors import AnamnesisError, BadSetting
from anamnesis_pipeline.llm.endpoints import with_scheme
from anamnesis_pipeline.llm.provider import PROBE_S, LlmOptions, Provider
from anamnesis_pipeline.model import ProviderName

PROVIDERS: tuple[ProviderName, ...] = get_args(ProviderName)
LABELS: Mapping[str, str] = {
    "claude_cli": "Claude's command line",
    "ollama": "Ollama",
    "anthropic": "Claude API",
    "openai": "OpenAI-compatible service",
}
"""What pages call them."""
NEVER_LOCAL = frozenset({"anthropic", "claude_cli"})
"""Providers that always send text off this machine, for any configuration."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The models of a provider. `cost`: how it is paid. `problem`: why it is unreachable, and what to do. `worker_url`:
    which of several servers this is. `any_model`: whether other models may be named, too.
    """

    backend: str
    reachable: bool
    models: tuple[str, ...]
    cost: str
    problem: str = ""
    worker_url: str = ""
    any_model: bool = False


def open_provider(kind: str, options: LlmOptions) -> Provider:
    """Return a provider with one model, without any call.

    :raises BadSetting: the provider is unknown, or a required key, URL or model is missing or invalid.
    :raises LlmRefused: its model costs money and its price is unknown.
    """
    return _class_of(kind).opened(options)


def open_chat(kind: str, model: str, options: LlmOptions, worker_url: str = "") -> Provider:
    """Return a provider for a conversation, whatever `options` says about the model. Raises as `open_provider`.

    :param model: empty: the provider's default.
    :param worker_url: of the only Ollama server to use; empty: the first that has the model.
    """
    if kind == "ollama" and worker_url:
        wanted = with_scheme(worker_url).rstrip("/")
        if wanted not in (with_scheme(url).rstrip("/") for url in options.ollama_urls):
            raise BadSetting("worker_url is not one of ollama_urls; choose one of these, or none")
        options = replace(options, ollama_urls=(wanted,))
    return open_provider(kind, replace(options, model=model))


async def offers(options: LlmOptions) -> list[Offer]:
    """Return the offers of all providers, checked concurrently; for several Ollama servers, one each."""
    urls = options.ollama_urls if len(options.ollama_urls) > 1 else ()
    wanted = [(kind, url) for kind in PROVIDERS for url in (urls if kind == "ollama" and urls else ("",))]
    return list(await asyncio.gather(*(offer_of(kind, options, url) for kind, url in wanted)))


async def offer_of(kind: str, options: LlmOptions, url: str = "") -> Offer:
    """Return the offer of one provider. Any error becomes its `problem`.

    :param url: of one of several servers; empty: it is the only one.
    """
    provider = await anyio.to_thread.run_sync(_class_of, kind)  # `anthropic` takes a second to import
    its = replace(options, ollama_urls=(url,)) if url else options
    away = Offer(kind, False, (), provider.cost(options), worker_url=url, any_model=kind == "openai")
    try:
        async with asyncio.timeout(PROBE_S):
            return replace(away, reachable=True, models=await provider.models(its))
    except TimeoutError:
        return replace(away, problem=f"it did not answer within {PROBE_S:.0f} s")
    except BadSetting as exc:
        return replace(away, problem=str(exc), any_model=False)
    except AnamnesisError as exc:
        return replace(away, problem=str(exc))


def _class_of(kind: str) -> type[Provider]:
    match kind:
        case "claude_cli":
            from anamnesis_pipeline.llm.claude_cli import ClaudeCli

            return ClaudeCli
        case "ollama":
            from anamnesis_pipeline.llm.ollama import Ollama

            return Ollama
        case "anthropic":
            from anamnesis_pipeline.llm.anthropic import Anthropic

            return Anthropic
        case "openai":
            from anamnesis_pipeline.llm.openai_compatible import OpenAiCompatible

            return OpenAiCompatible
    raise BadSetting(f"the LLM must be one of {', '.join(PROVIDERS)}, not {kind!r}; see the setting summarizer")
