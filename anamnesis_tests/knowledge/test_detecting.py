"""What all detectors share: titles of proposals."""

import pytest

from anamnesis_pipeline.knowledge.detecting import headline


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("keep  backups\nfor 30 days", "Keep backups for 30 days"),
        ("packages/web has the frontend", "packages/web has the frontend"),
        ("Emails go to Redis, which bills us", "Emails go to Redis, which …"),
    ],
)
def test_headline_is_one_line_of_whole_words(text: str, title: str) -> None:
    assert headline(text, 30) == title
    assert len(headline("x" * 40, 30)) == 30
