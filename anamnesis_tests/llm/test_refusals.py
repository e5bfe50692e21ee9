from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from anamnesis_pipeline.errors import LlmAnswerInvalid, LlmBusy, LlmPromptRefused, LlmRefused, LlmUnavailable
from anamnesis_pipeline.llm.refusals import LONGEST_WAIT_S, error_of_status, retry_after_s

NOW = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "values"),
    [
        (7.0, ("7", " 7 ", "7.0")),
        (0.5, ("0.5",)),
        (90.0, (format_datetime(NOW + timedelta(seconds=90), usegmt=True),)),
        (0.0, (format_datetime(NOW - timedelta(seconds=90), usegmt=True),)),
        (LONGEST_WAIT_S, ("1e99",)),
        (None, ("-3", "nan", "inf", "soon", "", None)),
    ],
)
def test_retry_after_is_a_number_or_a_date(seconds: float | None, values: tuple[str | None, ...]) -> None:
    headers = [{"content-type": "x"} if value is None else {"Retry-After": value} for value in values]
    assert [retry_after_s(each, NOW) for each in headers] == [seconds] * len(values)


def test_only_short_code_words_of_a_service_are_repeated() -> None:
    error = error_of_status("it", 400, ("invalid_request_error", "the key sk-1 is wrong", None, 7, "x" * 61))
    assert str(error).startswith("it answered 400 (invalid_request_error):")


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [
        (LlmUnavailable, (408, 409, 503)),
        (LlmBusy, (429, 529)),
        (LlmRefused, (302, 401, 402, 403)),
        (LlmPromptRefused, (400, 422)),
        (LlmAnswerInvalid, (413,)),
    ],
)
def test_a_bare_status_tells_waiting_from_refusing(kind: type[Exception], statuses: tuple[int, ...]) -> None:
    assert {type(error_of_status("it", status)) for status in statuses} == {kind}


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (("invalid_request_error",), "Your credit balance is too low to access the API"),
        (
            ("invalid_request_error",),
            "Error code: 400 - {'type': 'error', 'error': {'type': 'invalid_request_error', 'message': 'Your credit "
            "balance is too low to access the Anthropic API. Please go to Plans & Billing to purchase credits.'}}",
        ),
        ((), "Insufficient credits. Add more"),
        ((), "Error: your account has insufficient funds"),
        (("authentication_error",), ""),
        (("invalid_request_error", "invalid_api_key"), ""),
        (("invalid_request_error", "model_not_found"), ""),
        (("insufficient_quota",), ""),
    ],
)
def test_a_400_about_account_or_model_is_no_prompts_fault(codes: tuple[str, ...], message: str) -> None:
    error = error_of_status("it", 400, codes, message=message)
    assert type(error) is LlmRefused
    assert "Add more" not in str(error)
    assert "API" not in str(error).replace("API key", "")


@pytest.mark.parametrize(
    ("status", "kind"), [(400, LlmPromptRefused), (429, LlmBusy), (500, LlmUnavailable), (529, LlmBusy)]
)
@pytest.mark.parametrize(
    "message",
    [
        'Invalid message: "Why does the checkout say insufficient funds?"',
        "Invalid message: the checkout says insufficient funds",
        "The message is not of the form that it should have, which was: " + "x " * 99 + "credit balance is too low",
    ],
)
def test_a_quoted_prompt_about_money_is_no_lack_of_credit(status: int, kind: type[Exception], message: str) -> None:
    assert type(error_of_status("it", status, message=message)) is kind


@pytest.mark.parametrize(("status", "kind"), [(403, LlmRefused), (429, LlmRefused), (500, LlmUnavailable)])
def test_credit_is_looked_for_only_where_services_speak_of_it(status: int, kind: type[Exception]) -> None:
    error = error_of_status("it", status, message="Insufficient balance or no resource package. Please recharge.")
    assert type(error) is kind
    assert ("billing" in str(error)) is (kind is LlmRefused)
