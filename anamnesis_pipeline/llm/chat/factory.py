"""Chat backends by name, and their availability. Results are not cached."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

import anyio.to_thread

from anamnesis_pipeline.errors import AnamnesisError, BadSetting, LlmUnavailable
from anamnesis_pipeline.llm.chat.anthropic import URL, VERSION, AnthropicChat
from anamnesis_pipeline.llm.chat.base import ChatBackend
from anamnesis_pipeline.llm.chat.claude_cli import ClaudeCliChat
from anamnesis_pipeline.llm.chat.http import PROBE_S, rows_of
from anamnesis_pipeline.llm.chat.ollama import OllamaChat, models_of
from anamnesis_pipeline.llm.chat.openai_compatible import OpenAiChat
from anamnesis_pipeline.llm.endpoints import check_key, check_url, is_loopback, with_scheme
from anamnesis_pipeline.llm.prices import DEFAULT_MODELS, MODELS, Model, find_model
from anamnesis_pipeline.llm.summaries.claude_cli import ClaudeCliBackend
from anamnesis_pipeline.llm.summaries.factory import BackendOptions
from anamnesis_pipeline.sources.specs import parse_place

Look = Callable[[BackendOptions], Awaitable[tuple[str, ...]]]
"""Return the models of a backend; raise if it is unreachable."""
METERED = "by the token"
BACKENDS = ("claude_cli", "ollama", "anthropic", "openai")
_NO_LIST = (404, 405, 501)
"""Statuses of an OpenAI-compatible service without a list of models."""
_NO_CHAT = frozenset({"image", "video", "audio", "transcribe", "embedding", "moderation", "rerank"})
"""Model types without chat in the lists of some services (https://docs.together.ai/reference/models-1)."""
_NEVER_ASKED_FOR_A_PRICE = frozenset({"claude_cli", "ollama"})


@dataclass(frozen=True, slots=True)
class Offer:
    """The models of a backend. `cost`: how it is paid. `problem`: why it is unreachable, and what to do. `worker_url`:
    which of several servers this is. `any_model`: whether other models may be named, too.
    """

    backend: str
    reachable: bool
    models: tuple[str, ...]
    cost: str
    problem: str = ""
    worker_url: str = ""
    any_model: bool = False


def open_chat(kind: str, model: str, options: BackendOptions, worker_url: str = "") -> ChatBackend:
    """Return a backend with one model, without any call.

    :param model: empty: the backend's default.
    :param worker_url: of the only Ollama server to use; empty: the first that has the model.
    :raises BadSetting: the backend is unknown, or a required key, URL or model is missing.
    :raises LlmRefused: its model costs money and its price is unknown.
    """
    if kind not in BACKENDS:
        raise BadSetting(f"backend must be one of {', '.join(BACKENDS)}, not {kind!r}")
    model = model or DEFAULT_MODELS.get(kind, "")
    if not model:
        raise BadSetting(f"name a model: {kind} has no default")
    match kind:
        case "claude_cli":
            return ClaudeCliChat(_model(kind, model, options), options.claude_command, _claude_host(options))
        case "ollama":
            return OllamaChat(_model(kind, model, options), _chosen(_ollama_urls(options), worker_url))
        case "anthropic":
            return AnthropicChat(_model(kind, model, options), _anthropic_key(options), options.anthropic_url)
    url = _openai_url(options)
    is_paid = not is_loopback(url) or bool(options.input_price or options.output_price)
    key = check_key("openai_api_key", options.openai_api_key) if options.openai_api_key else None
    known = _model(kind, model, options, is_paid=is_paid)
    return OpenAiChat(known, url, key, is_paid=is_paid and (known.input_price, known.output_price) != (0.0, 0.0))


async def offers(options: BackendOptions) -> list[Offer]:
    """Return the offers of all backends, checked concurrently; for several Ollama servers, one each."""
    urls = options.ollama_urls if len(options.ollama_urls) > 1 else ()
    wanted = [(kind, url) for kind in BACKENDS for url in (urls if kind == "ollama" and urls else ("",))]
    return list(await asyncio.gather(*(offer_of(kind, options, url) for kind, url in wanted)))


async def offer_of(kind: str, options: BackendOptions, url: str = "") -> Offer:
    """Return the offer of one backend. Any error becomes its `problem`.

    :param url: of one of several servers; empty: it is the only one.
    """
    its = replace(options, ollama_urls=(url,)) if url else options
    away = Offer(kind, False, (), _cost(kind, options), worker_url=url, any_model=kind == "openai")
    try:
        async with asyncio.timeout(PROBE_S):
            return replace(away, reachable=True, models=await _LOOKS[kind](its))
    except TimeoutError:
        return replace(away, problem=f"it did not answer within {PROBE_S:.0f} s")
    except BadSetting as exc:
        return replace(away, problem=str(exc), any_model=False)
    except AnamnesisError as exc:
        return replace(away, problem=str(exc))


def _cost(kind: str, options: BackendOptions) -> str:
    if kind == "claude_cli":
        return "subscription"
    return "local" if kind == "ollama" or (kind == "openai" and is_loopback(options.openai_url)) else METERED


async def _look_at_cli(options: BackendOptions) -> tuple[str, ...]:
    backend = open_chat("claude_cli", "", options)
    known = _model("claude_cli", backend.model, options)
    probe = ClaudeCliBackend(known, options.claude_command, options.claude_host, PROBE_S).probe
    await anyio.to_thread.run_sync(probe, PROBE_S, abandon_on_cancel=True)
    return _known_models("claude_cli")


async def _look_at_ollama(options: BackendOptions) -> tuple[str, ...]:
    (url,) = _ollama_urls(options)
    names = await models_of(url)
    if not names:
        raise LlmUnavailable(f"ollama at {url} has no model; get one with: ollama pull {DEFAULT_MODELS['ollama']}")
    return names


async def _look_at_anthropic(options: BackendOptions) -> tuple[str, ...]:
    headers = {"x-api-key": _anthropic_key(options), "anthropic-version": VERSION}
    found = await rows_of(options.anthropic_url or URL, "/v1/models", headers, "the Claude API")
    listed = {str(each.get("id")) for each in found}
    return tuple(name for name in _known_models("anthropic") if name in listed) or _known_models("anthropic")


async def _look_at_openai(options: BackendOptions) -> tuple[str, ...]:
    url = _openai_url(options)
    headers = {"Authorization": f"Bearer {options.openai_api_key}"} if options.openai_api_key else {}
    found = await rows_of(url, "models", headers, f"the service at {url}", missing=_NO_LIST)
    return tuple(str(each.get("id")) for each in found if each.get("type") not in _NO_CHAT)


def _claude_host(options: BackendOptions) -> str:
    try:
        parse_place(options.claude_host or "here")
    except BadSetting as problem:
        raise BadSetting(f"claude_host: {problem}") from None
    return options.claude_host


def _ollama_urls(options: BackendOptions) -> tuple[str, ...]:
    if not options.ollama_urls:
        raise BadSetting("ollama_urls must hold at least one URL, e.g. http://127.0.0.1:11434")
    return tuple(check_url("ollama_urls", with_scheme(url)) for url in options.ollama_urls)


def _chosen(urls: tuple[str, ...], worker_url: str) -> tuple[str, ...]:
    """Return the servers to use: the chosen one, else all."""
    if not worker_url:
        return urls
    wanted = with_scheme(worker_url).rstrip("/")
    if wanted not in urls:
        raise BadSetting("worker_url is not one of ollama_urls; choose one of these, or none")
    return (wanted,)


def _openai_url(options: BackendOptions) -> str:
    if not options.openai_url:
        raise BadSetting("openai_url must be set, e.g. http://127.0.0.1:8080/v1")
    return check_url("openai_url", options.openai_url)


def _anthropic_key(options: BackendOptions) -> str:
    if not options.anthropic_api_key:
        raise BadSetting("anthropic_api_key must be set (ANAMNESIS_ANTHROPIC_API_KEY or ANTHROPIC_API_KEY)")
    return check_key("anthropic_api_key", options.anthropic_api_key)


def _model(kind: str, name: str, options: BackendOptions, *, is_paid: bool | None = None) -> Model:
    paid = kind not in _NEVER_ASKED_FOR_A_PRICE if is_paid is None else is_paid
    prices = {"input_price": options.input_price, "output_price": options.output_price} if paid else {}
    return find_model(kind, name, is_paid=paid, **prices)


def _known_models(kind: str) -> tuple[str, ...]:
    return tuple(model.name for model in MODELS if model.backend == kind)


_LOOKS: Mapping[str, Look] = {
    "claude_cli": _look_at_cli,
    "ollama": _look_at_ollama,
    "anthropic": _look_at_anthropic,
    "openai": _look_at_openai,
}
