"""The heading or name of what is forgotten leaves all that named it."""

import pytest

from anamnesis_tests.steps.crawled_documents import COLORS, PORTS, T0, DocumentHome, page


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
)  # fmt: skip


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
