"""In every format, one section is forgotten with its heading or name, and the others stay."""

import json
import re

import pytest

from anamnesis_pipeline.model import Section, SegmentKind
from anamnesis_pipeline.parsing.documents.sections import sections_of
from anamnesis_pipeline.pipeline.forgotten_sections import keys_of, without_sections
from anamnesis_tests.support.crawled_documents import COLORS, PORTS, T0, DocumentHome, page


def said(name: str, count: int) -> str:
    """Words that stand nowhere else."""
    return " ".join(f"{name}{number}x" for number in range(count))


MARKDOWN = "# Top\n\n" + "".join(f"## About {n}\n\nThe text {said(n, 9)}.\n\n" for n in ("heron", "walrus", "pelican"))
LONG = "\n\n".join(f"Paragraph {number}: {said(f'p{number}_', 60)}." for number in range(60))
LONG = LONG.replace("p30_7x", "walrus")
ONE_LINE = " ".join(said(f"w{number}_", 20) for number in range(150)).replace("w70_7x", "walrus")
PYTHON = '''"""Module of things."""
import os


def first_function_here(a, b):
    """Adds numbers a and b carefully."""
    return a + b + os.getpid()


SECRET_PLAN = "the walrus flies at midnight"


def second_function_here(a, b):
    """Multiplies numbers a and b carefully."""
    return a * b
'''
LONG_CLASS = 'class Dancer:\n    """A class of penguins."""\n\n    kind = "walrus"\n' + "".join(
    f'\n    def method_{n}(self, value):\n        """Step {n} of the dance."""\n'
    + "".join(f"        value = value + m{n}_step{line}\n" for line in range(20))
    + "        return value\n"
    for n in range(10)
)
SHELL = """#!/bin/bash
# Starts the pelican server.
start_server() {
  echo heron_starting_with_many_words
}
MIDNIGHT="walrus after the function"
stop_server() {
  echo pelican_stopping_with_many_words
}
"""
ITEMS = [{"id": number, "text": said("walrus" if number == 2 else f"item{number}_", 30)} for number in range(5)]
SMALL = [{"id": number, "text": "walrus" if number == 9 else f"item{number}x"} for number in range(30)]
YAML = "server:\n  animal: walrus of the harbour\nother:\n  animal: pelican of the pond\n"
CLAUDE = [
    {
        "name": "Talk",
        "chat_messages": [
            {
                "uuid": "a1",
                "sender": "human",
                "created_at": "2024-01-01T00:00:00Z",
                "text": "",
                "content": [{"type": "text", "text": "walrus"}, {"type": "text", "text": "is gold 4711"}],
                "attachments": [{"file_name": "notes.txt", "extracted_content": "harbour contents"}],
            },
            {
                "uuid": "a2",
                "sender": "assistant",
                "created_at": "2024-01-01T00:01:00Z",
                "text": "",
                "content": [{"type": "thinking", "thinking": "UNTOLD"}, {"type": "tool_use", "input": {"q": "UNTOLD"}}],
            },
            {"uuid": "a3", "sender": "assistant", "created_at": "2024-01-01T00:02:00Z", "text": "noted that one"},
            {"uuid": "a4", "sender": "human", "created_at": "2024-01-01T00:03:00Z", "text": "which pelican is it"},
            {"uuid": "a5", "sender": "assistant", "created_at": "2024-01-01T00:04:00Z", "text": "brown one"},
        ],
    }
]


def _node(name: str, parent: str | None, role: str, text: str, when: int) -> dict[str, object]:
    message = {"id": name, "author": {"role": role}, "create_time": when, "content": {"parts": [text]}}
    return {"id": name, "parent": parent, "message": message}


CHATGPT = [
    {
        "title": "Talk",
        "mapping": {
            "n1": _node("n1", None, "user", "which heron is it that", 1700000001),
            "n2": _node("n2", "n1", "assistant", "the grey animal", 1700000002),
            "n3": _node("n3", "n2", "user", "walrus where", 1700000003),
            "n4": _node("n4", "n3", "tool", "UNTOLD", 1700000004),
            "n5": _node("n5", "n4", "assistant", "under harbour", 1700000005),
        },
    }
]
SLACK = [
    {"user": "U1", "user_profile": {"real_name": "Annie"}, "text": "hey <@U2> walrus code", "ts": "1700000000.000100"},
    {"user": "U2", "user_profile": {"real_name": "Robert"}, "text": "pinno is 998877", "ts": "1700000060.000100"},
    {"user": "U2", "user_profile": {"real_name": "Robert"}, "text": "about pelicans", "ts": "1700900060.000100"},
]
DOCUMENTS = {
    "a.md": (MARKDOWN, MARKDOWN + "## Later\n\nSomething entirely new.\n"),
    "long.txt": (LONG, LONG + "\n\nSomething entirely new.\n"),
    "one_line.txt": (ONE_LINE, ONE_LINE + "\nSomething entirely new.\n"),
    "a.py": (PYTHON, PYTHON + "\n\ndef third_function_here(a):\n    return a * 3\n"),
    "long_class.py": (LONG_CLASS, LONG_CLASS + "\n\ndef some_function_here(a):\n    return a * 3\n"),
    "a.sh": (SHELL, SHELL + "wait_for_it() {\n  echo waiting_with_many_words\n}\n"),
    "items.json": (json.dumps(ITEMS), json.dumps([*ITEMS, {"id": 9, "text": said("new", 30)}])),
    "lines.json": (json.dumps(ITEMS, indent=1), json.dumps([*ITEMS, {"id": 9, "text": said("new", 30)}], indent=1)),
    "small.json": (json.dumps(SMALL), json.dumps([*SMALL, {"id": 99, "text": said("new", 30)}])),
    "claude.json": (json.dumps(CLAUDE), json.dumps(CLAUDE, indent=1)),
    "chatgpt.json": (json.dumps(CHATGPT), json.dumps(CHATGPT, indent=1)),
    "slack.json": (json.dumps(SLACK, indent=1), json.dumps(SLACK)),
    "a.yaml": (YAML, YAML + "\n"),
}


def words(text: str) -> set[str]:
    return set(re.findall(r"\w{5,}", text))


def body_of(section: Section) -> set[str]:
    return words(" ".join(piece.text for piece in section.pieces if piece.kind is not SegmentKind.OUTLINE))


@pytest.mark.parametrize("path", DOCUMENTS)
def test_any_one_section_goes_as_a_whole_and_the_others_stay(path: str) -> None:
    text, _ = DOCUMENTS[path]
    sections = sections_of(path, text)
    bodies = [body_of(section) for section in sections]
    for number, section in enumerate(sections):
        lines = without_sections(path, text.split("\n"), keys_of(section))
        others = set().union(*(body for place, body in enumerate(bodies) if place != number))
        left = words("\n".join(lines))
        assert len(lines) == text.count("\n") + 1
        assert not (bodies[number] - others) & left
        assert others - {"Robert"} <= left, "who was mentioned is told by the profiles of others"


@pytest.mark.parametrize("path", DOCUMENTS)
def test_a_forgotten_section_stays_away_when_its_file_changes(path: str, home: DocumentHome) -> None:
    text, later = DOCUMENTS[path]
    notes = home.holding(path, text)
    home.forget("walrus")
    assert not re.search("walrus|UNTOLD", home.archived())
    home.change(notes, path, later)
    assert not re.search("walrus|UNTOLD", home.kept())


@pytest.mark.parametrize("path", DOCUMENTS)
def test_sections_are_forgotten_until_nothing_is_left(path: str) -> None:
    text, _ = DOCUMENTS[path]
    lines, told = text.split("\n"), set[str]()
    for section in sections_of(path, text):
        lines = without_sections(path, lines, keys_of(section))
        told |= body_of(section)
    assert not told & words("\n".join(lines))


def test_what_was_turned_away_goes_with_the_turn_in_its_place() -> None:
    aside = {
        "o2": _node("o2", "n1", "assistant", "OTHERWISE answered", 1700000001),
        "o3": _node("o3", "n2", "user", "AARDWOLF where", 1700000002),
        "o4": _node("o4", "o3", "assistant", "AARDWOLF in the shed", 1700000002),
        "o6": _node("o6", "n5", "assistant", "BEHIND the last", 1700000003),
    }
    talk = {"title": "Talk", "current_node": "n5", "mapping": {**CHATGPT[0]["mapping"], **aside}}  # type: ignore[dict-item]
    text = json.dumps([talk])
    first, second = sections_of("chatgpt.json", text)
    (left,) = without_sections("chatgpt.json", [text], keys_of(second))
    assert {word for word in ("AARDWOLF", "BEHIND", "OTHERWISE", "heron") if word in left} == {"OTHERWISE", "heron"}
    (left,) = without_sections("chatgpt.json", [left], keys_of(first))
    assert not {word for word in ("AARDWOLF", "BEHIND", "OTHERWISE", "heron") if word in left}


# --- headings and names -----------------------------------------------------------------------------------


def told(home: DocumentHome) -> str:
    """All that the archive and the store say."""
    passages = [p.passage for e in home.episodes(every=True) for p in home.store.episodes.passages_of(e.episode_id)]
    parts = home.store.forgetting.parts_after("", 1_000)
    return home.archived() + "".join(map(str, [*parts, *passages, *home.episodes(every=True)]))


def test_a_forgotten_heading_leaves_the_titles_below_it(home: DocumentHome) -> None:
    text = page("## Walrus\n\nThe animal of this plan, which nobody is to know.", PORTS.replace("##", "###"), COLORS)
    notes = home.holding("a.md", text)
    assert home.one("3010").metadata["title"][-2:] == ["Walrus", "Ports"]
    home.forget("animal")
    assert home.one("3010").metadata["title"][-1] == "Ports"
    assert home.one("orange").metadata["title"][-1] == "Colors"
    assert "Walrus" not in told(home)
    home.change(notes, "a.md", text.replace("orange", "purple"))
    assert "purple" in told(home)
    assert "Walrus" not in told(home)


LIST_OF_CODE = '''import os


def walrus_counter(a, b):
    """Counts what nobody is to know."""
    return a + b + os.getpid()


def pelican_counter(a, b):
    """Counts pelicans on the harbour wall."""
    return a * b


class Harbour:
    """Where the ships are."""

''' + "".join(
    f'    def {name}(self, value):\n        """Step of the {name}."""\n'
    + "".join(f"        value = value + m{n}_{line}\n" for line in range(40))
    + "        return value\n\n"
    for n, name in enumerate(["mooring", "loading", "sailing", "landing", "resting"])
)


@pytest.mark.parametrize(
    ("target", "name"), [("nobody", "walrus"), ("value + m1_5", "loading"), ("Where the ships", "Harbour")]
)
def test_a_forgotten_name_leaves_the_outlines_around_it(home: DocumentHome, target: str, name: str) -> None:
    notes = home.holding("a.py", LIST_OF_CODE)
    home.change(notes, "a.py", LIST_OF_CODE + "# The end of the list of all of them.\n", T0 + 10)
    assert name in told(home)
    home.forget(target)
    assert name not in told(home)
    assert "pelican" in told(home)
    home.change(notes, "a.py", LIST_OF_CODE.replace("wall", "quay"))
    assert "quay" in told(home)
    assert name not in told(home)
