"""Content blocks as text: bytes of files become type, size and hash, and what only looks like them stays."""

import base64
import hashlib
import random

import pytest

from anamnesis_pipeline.parsing.claude_logs.blocks import result_text, tool_input_text

RAW = random.Random(7).randbytes(3_000)
DATA = base64.b64encode(RAW).decode()
SEEN = f"3000 bytes, sha256 {hashlib.sha256(RAW).hexdigest()[:12]}"


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (
            {"type": "resource", "resource": {"uri": "file:///a.png", "mimeType": "image/png", "blob": DATA}},
            f"[resource image/png, {SEEN}, file:///a.png]",
        ),
        (
            {"type": "resource", "resource": {"mimeType": "image/png", "data": DATA}},
            f'{{"type":"resource","resource":{{"mimeType":"image/png","data":"[{SEEN}]"}}}}',
        ),
        ({"type": "audio", "mimeType": "audio/wav", "data": DATA}, f"[audio audio/wav, {SEEN}]"),
        ({"type": "image", "mimeType": "image/png", "data": DATA}, f"[image image/png, {SEEN}]"),
        ({"type": "resource_link", "uri": "file:///r", "name": "report.pdf"}, "[resource_link report.pdf]"),
        ({"type": "resource_link", "uri": "file:///r"}, "[resource_link file:///r]"),
        ({"type": "resource", "resource": {"uri": "db://1", "text": "a row"}}, "[resource db://1]\na row"),
        ({"type": "chart", "payload": {"body": DATA}}, f'{{"type":"chart","payload":{{"body":"[base64, {SEEN}]"}}}}'),
        ({"type": "text", "text": f"a data:image/png;base64,{DATA} b"}, f"a [image/png, {SEEN}] b"),
        ({"type": "text", "text": f'{{"img":"{DATA}"}}'}, f'{{"img":"[base64, {SEEN}]"}}'),
        ({"type": "text", "text": base64.urlsafe_b64encode(RAW).decode()}, f"[base64, {SEEN}]"),
        ({"type": "text", "text": f"--\n{base64.encodebytes(RAW).decode()}end"}, f"--\n[base64, {SEEN}]\nend"),
    ],
)
def test_bytes_in_a_result_become_type_size_and_hash(block: dict[str, object], text: str) -> None:
    assert result_text([block]) == text
    assert result_text([{"type": "text", "text": "first"}, block]) == f"first\n{text}"


def test_bare_base64_is_a_reference_too() -> None:
    assert result_text(DATA) == f"[base64, {SEEN}]"
    assert result_text({"out": [DATA]}) == f'{{"out":["[base64, {SEEN}]"]}}'


@pytest.mark.parametrize(
    "text",
    [
        "/Users/ann/Code/" + "Project1/src/main/java/com/acme/FooBarBaz/" * 12,
        "0123456789abcdef" * 40,
        "\n".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(20)),
        "some_function_name_with_words_" * 20,
        "getUserNameFromDatabaseByIdAndReturn2" * 10,
        "x" * 5_000,
        "Makefile\nREADME\nsrc\n" * 60,
    ],
)
def test_long_names_paths_and_hashes_in_a_result_stay(text: str) -> None:
    assert result_text(text) == text
    assert result_text([{"type": "text", "text": text}]) == text


@pytest.mark.parametrize("text", ["the words of a file " * 20, "one\ttwo\t3\n" * 40, "0123456789abcdef" * 40])
def test_words_and_figures_are_no_bytes_of_a_file(text: str) -> None:
    assert tool_input_text("Write", {"data": text}) == f"Write\ndata: {text}"


def test_json_of_a_tool_that_resembles_a_file_stays() -> None:
    value = {"type": "resource", "resource": {"kind": "Pod", "name": "web"}}
    assert tool_input_text("Apply", {"item": value}) == (
        'Apply\nitem: {"type":"resource","resource":{"kind":"Pod","name":"web"}}'
    )
    assert tool_input_text("Draw", {"item": {"type": "image", "width": 3}}) == (
        'Draw\nitem: {"type":"image","width":3}'
    )
