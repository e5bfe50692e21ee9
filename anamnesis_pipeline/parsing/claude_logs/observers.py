"""Detect the sessions of other memory tools. Such a tool watches the user's sessions in separate sessions, whose text
repeats others and may be outdated. Pure except for reading rule files.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from anamnesis_pipeline.errors import BadSetting

FILE = "observers.toml"
"""Name of a rule file: the one in this package, and an additional one in the home."""
_FIELDS = ("name", "cwd", "entrypoint", "prompt")


@dataclass(frozen=True, slots=True)
class ObserverRule:
    """Pattern of a tool's sessions; empty fields are ignored."""

    name: str
    cwd: str = ""
    entrypoint: str = ""
    prompt: str = ""

    def __post_init__(self) -> None:
        """:raises BadSetting: there is no pattern, or no name."""
        if not self.name or not (self.cwd or self.prompt):
            raise BadSetting("an [[observer]] needs a name, and a cwd or the beginning of a prompt")

    def holds(self, cwd: str, entrypoint: str, prompt: str) -> bool:
        """Return whether a session belongs to the tool.

        :param prompt: the first one; empty for any other message.
        """
        return (
            (not self.cwd or fnmatchcase(f"{cwd.replace(chr(92), '/').rstrip('/')}/", f"{self.cwd.rstrip('/')}/"))
            and (not self.entrypoint or not entrypoint or fnmatchcase(entrypoint, self.entrypoint))
            and (not self.prompt or prompt.lstrip().startswith(self.prompt))
        )


@dataclass(frozen=True)
class ObserverRules:
    """A set of rules, applied to each message."""

    rules: tuple[ObserverRule, ...] = ()

    def name_of(self, cwd: str, entrypoint: str, prompt: str = "") -> str:
        """Return the tool to whose session a message belongs; empty: none."""
        return next((rule.name for rule in self.rules if rule.holds(cwd, entrypoint, prompt)), "")


def read_rules(home: Path) -> ObserverRules:
    """Return the rules of this package and those of the file in a home.

    :raises BadSetting: the file cannot be read, is no TOML, or holds an invalid rule.
    """
    try:
        return rules_of((home / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return built_in()
    except (OSError, UnicodeDecodeError) as problem:
        raise BadSetting(f"{home / FILE} cannot be read: {problem}") from None


def rules_of(text: str) -> ObserverRules:
    """Return the rules of this package, then those in the text of a file.

    :raises BadSetting: it is no TOML, or holds an invalid rule.
    """
    return ObserverRules((*built_in().rules, *_parsed(text)))


@lru_cache(maxsize=1)
def built_in() -> ObserverRules:
    """Return the rules of this package."""
    return ObserverRules(tuple(_parsed(files(__package__).joinpath(FILE).read_text(encoding="utf-8"))))


def _parsed(text: str) -> Sequence[ObserverRule]:
    try:
        found = tomllib.loads(text).get("observer", [])
    except tomllib.TOMLDecodeError as problem:
        raise BadSetting(f"{FILE} is no TOML: {problem}") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise BadSetting(f"{FILE}: write each rule as [[observer]]")
    for each in found:
        if unknown := sorted(each.keys() - set(_FIELDS)):
            raise BadSetting(f"{FILE}: {', '.join(unknown)} is no field of a rule; those are {', '.join(_FIELDS)}")
        if not all(isinstance(value, str) for value in each.values()):
            raise BadSetting(f"{FILE}: the fields of a rule are texts")
    return [ObserverRule(**{"name": "", **each}) for each in found]
