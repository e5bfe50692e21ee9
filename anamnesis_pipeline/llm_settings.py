"""The settings about LLMs, which write summaries: a part of `settings.Settings`, which reads them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode

from anamnesis_pipeline.exchanges.value import MIN_VALUE, WEIGHTS

MOST_PER_RUN = 1_000_000
Points = Annotated[float, Field(ge=0, le=20)]


def split_texts(value: Any) -> Any:
    """What a text separates by `,`; anything else stays, for pydantic to judge."""
    return tuple(text.strip() for text in value.split(",") if text.strip()) if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_texts)]
"""As a list, or separated by `,`."""


class LlmSettings(BaseSettings):
    """Each field's description is its row in docs/reference/settings.md."""

    summarizer: Literal["none", "claude_cli", "ollama", "anthropic", "openai"] = Field(
        "none", description="LLM that writes the summaries; `none`: sentences of the text itself are selected"
    )
    summary_model: str = Field("", description="Model of the summarizer; empty: the default of the backend")
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
        description="Min value of an exchange that an LLM summarizes; `anamnesis value` explains the value",
    )
    value_weights: Annotated[dict[str, Points], NoDecode] = Field(
        {}, description="Points of the rules of that value, if not the defaults, e.g. `correction=4,edits=0`"
    )
    max_exchanges_per_run: int = Field(
        0,
        ge=0,
        le=MOST_PER_RUN,
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
    llm_requests_per_minute: int = Field(50, ge=1, le=10_000, description="Max LLM calls per minute")
    llm_daily_tokens: int | None = Field(
        None, ge=0, description="Max LLM tokens per day (UTC), input and output together"
    )
    llm_daily_dollars: float | None = Field(
        None,
        ge=0,
        description="Max US dollars per day (UTC); without a budget a paid LLM runs only when a person starts it",
    )
    llm_input_price: float | None = Field(
        None, ge=0, description="US dollars per million input tokens, for a model of unknown price"
    )
    llm_output_price: float | None = Field(
        None, ge=0, description="US dollars per million output tokens, for a model of unknown price"
    )
    llm_batch_min: int = Field(
        100, ge=2, le=10_000, description="Min chunks that go to the Claude API as a batch, at half the price"
    )

    @field_validator("value_weights", mode="before")
    @classmethod
    def _split_weights(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = dict(piece.strip().partition("=")[::2] for piece in value.split(",") if piece.strip())
        if isinstance(value, Mapping) and (unknown := sorted(value.keys() - WEIGHTS.keys())):
            raise ValueError(f"{unknown[0]!r} is no rule of the value; the rules are: {', '.join(WEIGHTS)}")
        return value
