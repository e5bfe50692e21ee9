"""Default chat model: the summary model if one is configured, else one that is available now."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anamnesis_pipeline.errors import BadSetting, LlmRefused
from anamnesis_pipeline.llm.factory import Offer, open_chat
from anamnesis_pipeline.llm.prices import DEFAULT_MODELS
from anamnesis_pipeline.llm.provider import METERED
from anamnesis_pipeline.runtime.llm_wiring import backend_options
from anamnesis_pipeline.settings import Settings

_EMBEDS = re.compile(r"embed|minilm|bge|paraphrase", re.IGNORECASE)
"""Names of embedding models, which Ollama lists too but which cannot chat."""


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
