"""An overview of code: what it tells, how small it is, and how fresh."""

import ast
from pathlib import Path

import pytest

import anamnesis_pipeline.search
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.services.codebase import CodebaseOut, codebases_of
from anamnesis_tests.support.crawled_documents import DocumentHome

OWN = Path(anamnesis_pipeline.search.__path__[0])
"""A folder of this project's code."""


def overviews(home: DocumentHome, most: int = 100_000) -> list[CodebaseOut]:
    return codebases_of(home.store, EpisodeFilter(projects=("shop",)), most)


@pytest.fixture
def crawled(home: DocumentHome) -> DocumentHome:
    """A home with the code of one package, in a source of its project."""
    source = home.source("code", project="shop")
    for file in sorted(OWN.glob("*.py")):
        (Path(source.root) / file.name).write_text(file.read_text())
    home.ingest(source)
    return home


def test_overview_names_every_public_function_in_a_tenth(crawled: DocumentHome) -> None:
    (found,) = overviews(crawled)
    for file in OWN.glob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert node.name in found["text"], f"{file.name}: {node.name}"
    assert 0 < found["tokens"] <= found["code_tokens"] / 10


def test_overview_with_few_tokens_lists_only_files(crawled: DocumentHome) -> None:
    (found,) = overviews(crawled, 300)
    assert found["detail"] == "files"
    assert "engine.py" in found["text"]


def test_overview_is_that_of_the_last_crawl(crawled: DocumentHome) -> None:
    (source,) = [each for each in crawled.store.files.sources() if each.spec == "code"]
    crawled.change(source, "harbour.py", "def berth_the_ship(name, pier):\n    return [name, pier] * 20\n")
    assert "berth_the_ship" in overviews(crawled)[0]["text"]
