"""Which model answers where nobody chose one: the one of the summaries, else one that is there now."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anamnesis_pipeline.chat.factory import METERED, Offer, open_chat
from anamnesis_pipeline.errors import BadSetting, LlmRefused
from anamnesis_pipeline.llm_wiring import backend_options
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.summaries.prices import DEFAULT_MODELS

_EMBEDS = re.compile(r"embed|minilm|bge|paraphrase", re.IGNORECASE)
"""Names of models that Ollama lists, too, and that cannot say anything."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend with one of its models."""

    backend: str
    model: str


def default_choice(settings: Settings, found: Sequence[Offer]) -> Choice:
    """What answers where nobody names another: what writes the summaries, which somebody has set; else the first that
    answers now.

    :param found: all that there is; need not be known where an LLM writes the summaries.
    """
    wanted = wanted_choice(settings)
    return wanted if settings.summarizer != "none" else offered_choice(settings, found) or wanted


def wanted_choice(settings: Settings) -> Choice:
    """What would answer if it were there: what writes the summaries, else Ollama, which is free and local. Pure."""
    kind = settings.summarizer if settings.summarizer != "none" else "ollama"
    return Choice(kind, configured_model(settings, kind) or DEFAULT_MODELS.get(kind, ""))


def configured_model(settings: Settings, kind: str) -> str:
    """The model that is set for a backend; empty: none is. Pure."""
    return settings.summary_model if settings.summarizer == kind else ""


def offered_choice(settings: Settings, found: Sequence[Offer]) -> Choice | None:
    """The first that answers now and may, beginning with the one that is wanted; None: there is none."""
    options = backend_options(settings)

    def may(choice: Choice) -> bool:
        try:
            backend = open_chat(choice.backend, choice.model, options)
        except (BadSetting, LlmRefused):
            return False
        return backend.is_local or not settings.local_only

    return first_choice(found, wanted_choice(settings), may)


def first_choice(found: Sequence[Offer], wanted: Choice, may: Callable[[Choice], bool]) -> Choice | None:
    """The wanted model, else another of its backend, else one of another backend, those that are paid by the token
    last. Pure.

    :param may: whether a choice may answer.
    """

    def order(pair: tuple[Offer, str]) -> tuple[bool, ...]:
        offer, model = pair
        is_wanted = wanted.model in (model, model.removesuffix(":latest"))
        return offer.backend != wanted.backend, offer.cost == METERED, not is_wanted, bool(_EMBEDS.search(model))

    there = [(offer, model) for offer in found if offer.reachable for model in offer.models]
    choices = (Choice(offer.backend, model) for offer, model in sorted(there, key=order))
    return next(filter(may, choices), None)
