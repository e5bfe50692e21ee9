import subprocess
import sys
from dataclasses import replace

import pytest

from anamnesis_pipeline.errors import BadSetting, LlmRefused
from anamnesis_pipeline.llm.factory import LABELS, PROVIDERS, open_provider
from anamnesis_pipeline.llm.provider import LlmOptions
from anamnesis_pipeline.sources.specs import parse_place

FAR = LlmOptions(model="m", openai_url="https://x.example/v1")
NEAR = LlmOptions(model="m", openai_url="http://localhost/v1")
OLLAMA = ("127.0.0.1:11434", "http://192.168.0.9:11434/")


def test_every_provider_has_a_label() -> None:
    assert LABELS.keys() == set(PROVIDERS)


@pytest.mark.parametrize(
    ("kind", "options", "model", "is_paid", "is_local"),
    [
        ("claude_cli", LlmOptions(), "haiku", False, False),
        ("claude_cli", LlmOptions(model="opus", claude_host="me@far:2222"), "opus", False, False),
        ("ollama", LlmOptions(ollama_urls=OLLAMA[:1]), "llama3.2", False, True),
        ("ollama", LlmOptions(ollama_urls=OLLAMA, input_price=5.0, output_price=5.0), "llama3.2", False, False),
        ("ollama", LlmOptions("gpt-oss:120b-cloud", ollama_urls=OLLAMA[:1]), "gpt-oss:120b-cloud", False, False),
        ("ollama", LlmOptions(ollama_urls=("localhost:1", "127.0.0.1:2")), "llama3.2", False, True),
        ("anthropic", LlmOptions(anthropic_api_key="k"), "claude-haiku-5-5", True, False),
        ("openai", LlmOptions(model="m", openai_url="http://[::1]:8080/v1/"), "m", False, True),
        ("openai", replace(FAR, input_price=1.0, output_price=2.0), "m", True, False),
        ("openai", replace(FAR, input_price=0.0, output_price=0.0), "m", False, False),
        ("openai", replace(NEAR, input_price=1.0, output_price=2.0), "m", True, True),
    ],
)
def test_a_setting_opens_a_backend(kind: str, options: LlmOptions, model: str, is_paid: bool, is_local: bool) -> None:
    backend = open_provider(kind, options)
    assert (backend.name, backend.model, backend.is_paid, backend.is_local) == (kind, model, is_paid, is_local)
    assert backend.concurrency >= 1
    backend.close()


@pytest.mark.parametrize(
    ("kind", "options", "setting"),
    [
        ("none", LlmOptions(), "summarizer"),
        ("anthropic", LlmOptions(), "anthropic_api_key"),
        ("anthropic", LlmOptions(anthropic_api_key="k", anthropic_url="ftp://x"), "anthropic_url"),
        ("ollama", LlmOptions(), "ollama_urls"),
        ("ollama", LlmOptions(ollama_urls=("http://",)), "ollama_urls"),
        ("ollama", LlmOptions(ollama_urls=("http://h:port",)), "ollama_urls"),
        ("openai", LlmOptions(model="m"), "openai_url"),
        ("openai", LlmOptions(model="m", openai_url="http://me:SECRET@h/v1"), "openai_url"),
        ("openai", LlmOptions(model="m", openai_url="SECRET@h/v1"), "openai_url"),
        ("openai", LlmOptions(model="m", openai_url="http://h/v1?key=SECRET"), "openai_url"),
        ("openai", LlmOptions(model="m", openai_url="http://h:port/v1?api_key=SECRET"), "openai_url"),
        ("openai", LlmOptions(model="m", openai_url="http://h:port/v1?api_key=a@SECRET"), "openai_url"),
        ("openai", LlmOptions(model="m", openai_url="http://me:SECRET?x@h:port"), "openai_url"),
        ("openai", LlmOptions(model="m", openai_url="h/v1#SECRET"), "openai_url"),
        ("openai", replace(NEAR, openai_api_key="sk-SECRET\u2026"), "openai_api_key"),
        ("anthropic", LlmOptions(anthropic_api_key="sk-ant-SECR\u00c9T"), "anthropic_api_key"),
        ("anthropic", LlmOptions(anthropic_api_key="SECRET\nSECRET"), "anthropic_api_key"),
        ("openai", LlmOptions(openai_url="http://127.0.0.1/v1"), "summary_model"),
        ("claude_cli", LlmOptions(claude_command=" "), "claude_command"),
        ("claude_cli", LlmOptions(claude_command="claude 'x"), "claude_command"),
        ("claude_cli", LlmOptions(claude_host="me@"), "claude_host"),
        ("claude_cli", LlmOptions(claude_host="a b"), "claude_host"),
        ("claude_cli", LlmOptions(claude_host="me@far:ssh"), "claude_host"),
        ("claude_cli", LlmOptions(claude_host="-oProxyCommand=x"), "claude_host"),
    ],
)
def test_what_is_missing_or_wrong_is_named_before_any_call(kind: str, options: LlmOptions, setting: str) -> None:
    with pytest.raises(BadSetting, match=setting) as caught:
        open_provider(kind, options)
    assert "SECRET" not in str(caught.value)


def test_a_paid_service_without_a_known_price_is_refused() -> None:
    with pytest.raises(LlmRefused, match="llm_input_price"):
        open_provider("openai", FAR)


def test_options_do_not_show_their_keys() -> None:
    assert "SECRET" not in repr(LlmOptions(anthropic_api_key="SECRET", openai_api_key="SECRET"))


@pytest.mark.parametrize(
    ("place", "parsed"),
    [
        ("far", (None, "far", None)),
        ("me@far", ("me", "far", None)),
        ("me@far:2222", ("me", "far", 2222)),
        ("::1", (None, "::1", None)),
        ("me@[::1]:22", ("me", "::1", 22)),
        ("far:22", (None, "far", 22)),
    ],
)
def test_a_host_is_written_as_ssh_writes_it(place: str, parsed: tuple[str | None, str, int | None]) -> None:
    assert parse_place(place) == parsed


def test_an_unused_client_library_is_not_loaded() -> None:
    code = (
        "import sys; from anamnesis_pipeline.llm.factory import LlmOptions, open_provider; "
        "open_provider('claude_cli', LlmOptions()); "
        "print([m for m in ('anthropic', 'ollama', 'httpx', 'paramiko') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
