"""Meaning of HTTP statuses of LLM services: wait, retry later, or change something. Pure.

Messages of the service are not repeated, since they may contain the key or the prompt: only its status and error codes.
"""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from anamnesis_pipeline.errors import (
    AnamnesisError,
    LlmAnswerInvalid,
    LlmBusy,
    LlmPromptRefused,
    LlmRefused,
    LlmUnavailable,
)

LONGEST_WAIT_S = 7 * 86_400.0

_CODE = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_QUOTA = ("insufficient_quota", "billing", "spend_limit", "credit", "ramp_limit", "quota_exceeded")
_TOO_LONG = ("context_length_exceeded", "request_too_large", "exceed_context_size")
_NO_ACCESS = ("authentication", "permission", "api_key", "model_not_found")
_BUSY = ("overloaded_error", "rate_limit_error")
_NO_CREDIT = re.compile(
    r".{0,160}credit balance is too low|(?:error: ?)?[^\"'`:]{0,60}insufficient (?:credit|quota|balance|funds)",
    re.IGNORECASE | re.DOTALL,
)
"""Beginnings of messages about the account, not the prompt; later text may quote the prompt."""
_OF_ACCOUNT = frozenset({400, 403, 429})
"""Statuses of such messages, beside 402."""
_OF_PROMPT = frozenset({400, 422})
_HINTS = {
    401: "check its API key",
    402: "its account has no credit left",
    403: "its API key may not do this",
    404: "check the model's name and the URL",
}


def error_of_status(
    service: str,
    status: int,
    codes: Iterable[object] = (),
    headers: Mapping[str, str] | None = None,
    message: str = "",
) -> AnamnesisError:
    """Return the error for a failed reply.

    :param codes: the service's error types, e.g. (`rate_limit_error`,); anything but short code words is dropped.
    :param headers: of the reply: `retry-after` gives the time to wait, `location` a redirect's target, which is not
        followed: a prompt goes only to its configured host.
    :param message: the service's text; only its beginning is checked for missing credit, never repeated.
    """
    words = code_words(codes)
    said = f"{service} answered {status}" + (f" ({', '.join(words)})" if words else "")
    if _any(words, _QUOTA) or status == 402 or (status in _OF_ACCOUNT and _NO_CREDIT.match(message)):
        return LlmRefused(f"{said}: quota or credit is used up; see to the account's billing")
    if _any(words, _TOO_LONG) or status == 413:
        return LlmAnswerInvalid(f"{said}: the prompt is too long for this model")
    if status in (429, 529) or _any(words, _BUSY):
        return LlmBusy(f"{said}: it asks to wait", retry_after_s(headers or {}))
    if status >= 500 or status in (408, 409) or "api_error" in words or "timeout_error" in words:
        return LlmUnavailable(f"{said}; try again later")
    if (status in _OF_PROMPT or (status < 300 and "invalid_request_error" in words)) and not _any(words, _NO_ACCESS):
        return LlmPromptRefused(f"{said}: it does not take this prompt")
    if 300 <= status < 400:
        said += f": it passes calls on to {_target(headers or {})}, which is not followed"
    return LlmRefused(f"{said}; {_HINTS.get(status, 'it does not take the request as it is: check model and URL')}")


def code_words(codes: Iterable[object]) -> list[str]:
    """Return the short code words, which contain nothing that was sent."""
    return [code for code in codes if isinstance(code, str) and _CODE.fullmatch(code)]


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds to wait, from `retry-after` as a number or an HTTP date; None without a usable value."""
    value = next((v for name, v in headers.items() if name.lower() == "retry-after"), "").strip()
    try:
        seconds = float(value)
    except ValueError:
        seconds = _until(value, now or datetime.now(UTC))
    return min(seconds, LONGEST_WAIT_S) if math.isfinite(seconds) and seconds >= 0 else None


def _target(headers: Mapping[str, str]) -> str:
    """Return the host of a redirect; the rest of its URL may contain a key."""
    location = next((value for name, value in headers.items() if name.lower() == "location"), "")
    try:
        return urlsplit(location).hostname or "another address of its own"
    except ValueError:
        return "what is no URL"


def _until(value: str, now: datetime) -> float:
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return math.nan
    return max((moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds(), 0.0)


def _any(words: list[str], parts: tuple[str, ...]) -> bool:
    return any(part in word for word in words for part in parts)
