"""Opens the backend of the setting `summarizer`. Imports late, since libraries are slow to load."""

import shlex
from dataclasses import dataclass, field

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.llm.endpoints import check_key, check_url, is_loopback, with_scheme
from anamnesis_pipeline.llm.prices import DEFAULT_MODELS, Model, find_model
from anamnesis_pipeline.llm.summaries.base import SummaryBackend
from anamnesis_pipeline.sources.specs import parse_place


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """Options of all backends, named after the settings.

    :param model: empty: the backend's default.
    :param timeout_s: seconds after which a silent LLM is given up.
    :param ollama_threads: CPU threads per call of an Ollama server on this machine; None leaves it to the server.
    """

    model: str = ""
    timeout_s: float = 180.0
    claude_command: str = "claude"
    claude_host: str = ""
    ollama_urls: tuple[str, ...] = ()
    ollama_threads: int | None = None
    openai_url: str = ""
    openai_api_key: str | None = field(default=None, repr=False)
    anthropic_api_key: str | None = field(default=None, repr=False)
    anthropic_url: str = ""
    input_price: float | None = None
    output_price: float | None = None


def open_backend(kind: str, options: BackendOptions) -> SummaryBackend:
    """Return the backend that the setting `summarizer` names, without any call.

    :raises BadSetting: a required key, URL or model is missing or invalid.
    :raises LlmRefused: its model costs money and its price is unknown.
    """
    match kind:
        case "claude_cli":
            return _claude_cli(options)
        case "ollama":
            return _ollama(options)
        case "anthropic":
            return _anthropic(options)
        case "openai":
            return _openai(options)
    raise BadSetting(f"summarizer must be claude_cli, ollama, anthropic or openai to use an LLM, not {kind!r}")


def _model(kind: str, options: BackendOptions, *, is_paid: bool, name: str = "") -> Model:
    name = name or options.model or DEFAULT_MODELS.get(kind, "")
    if not name:
        raise BadSetting(f"summary_model must be set: {kind} has no default")
    prices = {"input_price": options.input_price, "output_price": options.output_price} if is_paid else {}
    return find_model(kind, name, is_paid=is_paid, **prices)


def _claude_cli(options: BackendOptions) -> SummaryBackend:
    from anamnesis_pipeline.llm.summaries.claude_cli import ClaudeCliBackend

    try:
        words = shlex.split(options.claude_command)
    except ValueError:
        words = []
    if not words:
        raise BadSetting(f"claude_command must be a command line, not {options.claude_command!r}")
    if options.claude_host:
        try:
            parse_place(options.claude_host)
        except BadSetting as problem:
            raise BadSetting(f"claude_host: {problem}") from None
    model = _model("claude_cli", options, is_paid=False)
    return ClaudeCliBackend(model, options.claude_command, options.claude_host, options.timeout_s)


def _ollama(options: BackendOptions) -> SummaryBackend:
    urls = tuple(check_url("ollama_urls", with_scheme(url)) for url in options.ollama_urls)
    if not urls:
        raise BadSetting("ollama_urls must hold at least one URL, e.g. http://127.0.0.1:11434")
    from anamnesis_pipeline.llm.summaries.ollama import OllamaBackend

    model = _model("ollama", options, is_paid=False)
    return OllamaBackend(model, urls, options.timeout_s, options.ollama_threads)


def _anthropic(options: BackendOptions) -> SummaryBackend:
    if not options.anthropic_api_key:
        raise BadSetting("anthropic_api_key must be set (ANAMNESIS_ANTHROPIC_API_KEY or ANTHROPIC_API_KEY)")
    key = check_key("anthropic_api_key", options.anthropic_api_key)
    url = check_url("anthropic_url", options.anthropic_url) if options.anthropic_url else ""
    from anamnesis_pipeline.llm.summaries.anthropic import URL, AnthropicBackend

    def find(name: str) -> Model:
        return _model("anthropic", options, is_paid=True, name=name)

    return AnthropicBackend(find(""), key, options.timeout_s, url or URL, find=find)


def _openai(options: BackendOptions) -> SummaryBackend:
    if not options.openai_url:
        raise BadSetting("openai_url must be set, e.g. http://127.0.0.1:8080/v1")
    url = check_url("openai_url", options.openai_url)
    key = check_key("openai_api_key", options.openai_api_key) if options.openai_api_key else None
    from anamnesis_pipeline.llm.summaries.openai_compatible import OpenAiBackend

    is_paid = not is_loopback(url) or bool(options.input_price or options.output_price)
    model = _model("openai", options, is_paid=is_paid)
    is_paid = is_paid and (model.input_price, model.output_price) != (0.0, 0.0)
    return OpenAiBackend(model, url, options.timeout_s, key, is_paid=is_paid)
