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
    """Each field's description is its row in the README's table."""

    summarizer: Literal["none", "claude_cli", "ollama", "anthropic", "openai"] = Field(
        "none", description="LLM that writes the summaries; `none`: telling sentences are picked without one"
    )
    summary_model: str = Field("", description="Its model; empty: the backend's own default")
    summary_timeout_s: int = Field(180, ge=5, le=3600, description="Seconds after which a silent LLM is given up")
    summary_min_chars: int = Field(
        200, ge=0, le=10_000, description="Characters below which a text is its own summary, and not sent to an LLM"
    )
    summary_min_value: float = Field(
        MIN_VALUE,
        ge=0,
        le=20,
        description="Value below which an exchange is not sent to an LLM (see `anamnesis value`)",
    )
    value_weights: Annotated[dict[str, Points], NoDecode] = Field(
        {}, description="Points of its rules, where they are not the default, e.g. `correction=4,edits=0`"
    )
    max_exchanges_per_run: int = Field(
        0, ge=0, le=MOST_PER_RUN, description="Most parts of exchanges that a run summarizes; the next goes on; 0: all"
    )
    claude_command: str = Field("claude", min_length=1, description="Claude's command line, for `claude_cli`")
    claude_host: str = Field(
        "",
        description="Host it runs on, over SSH: `user@host` or `user@host:port`, with its key in `~/.ssh/known_hosts`; "
        "empty: here",
    )
    ollama_urls: Texts = Field(
        ("http://127.0.0.1:11434",), description="Ollama servers, tried in order, separated by `,`"
    )
    openai_url: str = Field("", description="Base URL of an OpenAI-compatible service, e.g. `http://127.0.0.1:8080/v1`")
    openai_api_key: SecretStr | None = Field(
        None,
        description="Its key, if it wants one; without that URL it is of OpenAI's embeddings, else `OPENAI_API_KEY`",
    )
    anthropic_api_key: SecretStr | None = Field(None, description="Key of the Claude API; else `ANTHROPIC_API_KEY`")
    anthropic_url: str = Field("", description="Base URL of the Claude API, where it is not Anthropic's own")
    voyage_api_key: SecretStr | None = Field(None, description="Key of Voyage's embeddings; else `VOYAGE_API_KEY`")
    gemini_api_key: SecretStr | None = Field(None, description="Key of Gemini's embeddings; else `GEMINI_API_KEY`")
    embedding_api_url: str = Field(
        "", description="Base URL of the service whose embedding model it is, where it is not its own"
    )
    llm_requests_per_minute: int = Field(50, ge=1, le=10_000, description="Most LLM calls a minute")
    llm_daily_tokens: int | None = Field(None, ge=0, description="Most LLM tokens a day (UTC), in and out together")
    llm_daily_dollars: float | None = Field(
        None, ge=0, description="Most US dollars a day (UTC); without a budget a paid LLM runs only by hand"
    )
    llm_input_price: float | None = Field(None, ge=0, description="Dollars per million tokens in, for an unknown model")
    llm_output_price: float | None = Field(None, ge=0, description="Dollars per million tokens out, likewise")
    llm_batch_min: int = Field(
        100, ge=2, le=10_000, description="Parts from which on the Claude API's cheaper batches are used"
    )

    @field_validator("value_weights", mode="before")
    @classmethod
    def _split_weights(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = dict(piece.strip().partition("=")[::2] for piece in value.split(",") if piece.strip())
        if isinstance(value, Mapping) and (unknown := sorted(value.keys() - WEIGHTS.keys())):
            raise ValueError(f"{unknown[0]!r} is no rule of the value; the rules are: {', '.join(WEIGHTS)}")
        return value
