"""What an edit or a command is about to touch, and whether a statement is about just that. Pure.

That a file or command was touched before does not make a statement be about it: it must name the file, a symbol, a
package or a program, or the words that the change itself adds or removes.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

from anamnesis_pipeline.entities.naming import command_names, is_same_file
from anamnesis_pipeline.parsing.claude_logs.commands import commands_of, is_telling, matters
from anamnesis_pipeline.parsing.documents.languages import TEXTS, format_of
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS

MAX_TEXT_CHARS = 4_000
MIN_WORD = 3
_NAME = re.compile(r"[\w@][\w@./-]*[\w]|\w")
_PIECE = re.compile(r"[^\W\d_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DISTINCT = re.compile(r"\w_\w|[a-z0-9][A-Z]|\w\.\w")
"""In names that no sentence has by chance."""
_IMPORT = re.compile(
    r"""^\s*(?:import|from|use|using|require|include|\#include|implementation|api|gem|FROM|image:|-\ uses:|source)\b
    [\s("'<]*(?P<what>[^\n;]+)""",
    re.MULTILINE | re.VERBOSE,
)
_IMAGE = re.compile(r"^\s*(?:FROM|image:)\s+(\S+)", re.MULTILINE)
_VALUE = re.compile(r"\b(?:true|false|on|off|yes|no|\d[\w.]*)\b", re.IGNORECASE)
_DEFINED = re.compile(r"\b(?:def|class|function|fn|func|interface|struct|trait)\s+([A-Za-z_]\w+)")
_MANIFEST = re.compile(
    r"^(?:go\.mod|package\.json|vcpkg\.json|manifest\.json|composer\.json|requirements.*|Cargo\.toml|pyproject\.toml|Gemfile"
    r"|build\.gradle.*|pom\.xml|mix\.exs|pubspec\.yaml|environment\.ya?ml|.*\.csproj)$"
)
"""Files that list what a project depends on."""
_OF_TEST = re.compile(r"^tests?_|[._-](?:tests?|spec)\.|Tests?\.\w+$")
_GROUPED = re.compile(r"import\s*\((.*?)\)", re.DOTALL)
_EVERYWHERE = frozenset(
    """
    src lib app test tests index main mod init spec util utils common core internal pkg cmd config data model models
    home code work worktrees the true false none null self this new return const let var def class function import from
    public private static final async await export default string int bool float list dict type value name result error
    print run build start check dev java com org net github http https www file files path version package project
    """.split()
)
"""Words of many paths and programs."""
_COMMON = frozenset(
    """
    git make python python3 node npm npx yarn pnpm bun deno docker kubectl go cargo bundle terraform pytest pip pip3 uv
    bash sh ruby php java mvn gradle gh dotnet mix set export cd curl psql ansible ansible-playbook composer
    """.split()
)
"""Programs that most statements about a project's commands name; further words must tell which is meant."""
_RULES = re.compile(
    r"""\b(?: never | always | must(?:\ not)? | don['’]?t | do\ not | no\ longer | (?<![-/])no(?![-/]) | not | only
        | stay(?:s|\ with)? | drop | decided | instead | is\ out | revert | rather | every | cannot | can['’]t | frozen
        | by\ hand | for\ good | kein\w* | nie(?:mals)? | immer | nur | nicht | bleib\w* | nein
        | (?-i:^[Nn]on) | ne\b.{1,30}\bplus
        | jede[snrm]? | raus | jamais | toujours | pas | seulement | plus\ de | reste
        | nunca | siempre | s[oó]lo | n[aã]o
        | volvemos | nada\ de | ya\ no )\b""",
    re.IGNORECASE | re.VERBOSE,
)
_REFUSES = re.compile(
    r"""(?:(?<![\w/-])(?:no(?!\ longer) | never | don['’]?t | do\ not | not | without | drop | kein\w* | nie(?:mals)?
    | pas\ d(?:e\ |['’]) | jamais | nada\ de | nunca | sin | n[aã]o)\ (?P<what>[^.,;:!?()]{3,80}))""",
    re.IGNORECASE | re.VERBOSE,
)
_QUOTES = re.compile(r"[\"“„«][^\"”“»]*[\"”“»]")
_ENDING = re.compile(r"(?:ing|ed|es|s|e)$")


@dataclass(frozen=True, slots=True)
class Terms:
    """What an action touches, in small letters.

    `path`: of the file; `names`: of the file and of symbols, of which one suffices; `brought`: packages and programs
    that it brings in or takes out, of which one suffices, too. `changed`: stems of the words that it adds or removes;
    `added`: those of the words that it adds, or of the whole command; `place`: those of its path, or of the command;
    `stem`: those of the file's own name.
    """

    path: str = ""
    names: frozenset[str] = frozenset()
    brought: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    place: frozenset[str] = frozenset()
    stem: frozenset[str] = frozenset()


def terms_of_edit(name: str, before: str, after: str) -> Terms:
    """Return what an edit touches.

    :param name: of the file, as `naming.file_name` returns it.
    :param before: the text that it replaces; empty for a new file.
    """
    pieces = [piece for piece in name.split("/") if piece]
    leaf = pieces[-1] if pieces else ""
    own = leaf.partition(".")[0] or leaf
    names = {own.lower()} if _DISTINCT.search(own) else set()
    path = name.lower()
    place, stem = stems(" ".join(pieces[-3:])), frozenset() if _OF_TEST.search(leaf) else stems(own)
    stem = stem if len(stem) > 1 else frozenset()  # one word is said of many things
    if format_of(leaf) in TEXTS:
        return Terms(path, frozenset(names), added=stems(after) - stems(before), place=place, stem=stem)
    one, other = _names_in(before[:MAX_TEXT_CHARS]), _names_in(after[:MAX_TEXT_CHARS])
    changed = one ^ other
    if before and before != after and _VALUE.sub("", before) == _VALUE.sub("", after):
        changed = _names_in("\n".join({*before.splitlines()} ^ {*after.splitlines()})[:MAX_TEXT_CHARS])
    named = {*(changed if before else ()), *_DEFINED.findall(before)}
    names |= {each.lower() for each in named if _DISTINCT.search(each)}
    brought = _brought(before) ^ _brought(after)
    if _MANIFEST.search(leaf):
        brought |= {each.lower() for each in changed if len(each) > MIN_WORD} - _EVERYWHERE
    if after.startswith("#!") and "sh" in after.partition("\n")[0]:
        brought |= {program for _, program in command_names(after) if is_telling(program)} - _COMMON
    return Terms(
        path,
        frozenset(names),
        frozenset(brought),
        stems(" ".join(changed)) if before else frozenset(brought),
        stems(" ".join(other - one)),
        place,
        stem,
    )


def terms_of_command(script: str) -> Terms:
    """Return what a command touches; nothing for commands that only show or move."""
    script = script[:MAX_TEXT_CHARS]
    telling = {name: program for name, program in command_names(script) if is_telling(program)}
    if not telling or not matters(script):
        return Terms()
    words: set[str] = set()
    brought: set[str] = set()
    for program, rest, _ in commands_of(script):
        if is_telling(program):
            words.update(word for word in rest if "\n" not in word and "/" not in word)
            if _INSTALLS.search(" ".join([program, *rest])):
                pairs = pairwise(rest)
                given = [word for before, word in pairs if not word.startswith("-") and before not in _INTO]
                brought |= {re.split(r"[=@<>~^]", word)[0].lower() for word in given}
    brought -= _INSTALL_WORDS
    place = stems(" ".join(telling))
    changed = stems(" ".join(words)) | place
    return Terms("", frozenset(), frozenset(brought), changed, changed, place)


def is_about(quote: str, terms: Terms, *, was_there: bool) -> bool:
    """Return whether a statement is about an action.

    :param was_there: it was made in a session that edited the same file.
    """
    named = {each.lower().removesuffix("()") for each in _NAME.findall(quote)}
    if terms.path and any("." in each and _is_file(terms.path, each) for each in named):
        return True
    if any("/" in each.strip("/") and f"/{each.strip('/')}/" in f"/{terms.path}" for each in named):
        return True
    leaves = {each.rpartition("/")[2] for each in named}
    if leaves & terms.names or {*leaves, *_words(quote)} & terms.brought:
        return True
    if forbidden(quote) & terms.added:
        return True
    words = stems(quote)
    changed, place = words & terms.changed, words & terms.place
    if was_there and (changed or (terms.stem and terms.stem <= words)):
        return True
    return len(changed) > 1 or bool(changed and place - changed)


def _is_file(path: str, named: str) -> bool:
    """Return whether a name is that of a file; one that many folders have must come with its folder."""
    is_alone = "/" not in named and named.partition(".")[0] in _EVERYWHERE
    return not is_alone and is_same_file(path, named)


def rules(sentence: str) -> bool:
    """Return whether a sentence says what is always, never or no longer to be done, in one of a few languages."""
    return not sentence.rstrip().endswith("?") and _RULES.search(_QUOTES.sub("", sentence)) is not None


def forbidden(sentence: str) -> frozenset[str]:
    """Return the stems of what a sentence says no to: of the first two words that tell anything after `no`, `never` and
    the like, before the next mark.
    """
    refused = [each["what"] for each in _REFUSES.finditer(_QUOTES.sub("", sentence))]
    telling = ([stems(word) for word in _PIECE.findall(text) if stems(word)][:2] for text in refused)
    return frozenset(stem for words in telling for word in words for stem in word)


def stems(text: str) -> frozenset[str]:
    """Return the stems of the words of a text, also of those within names, without common ones."""
    return frozenset(
        _ENDING.sub("", word) if len(word) > 4 else word for word in _words(text) if word not in _EVERYWHERE
    )


def _words(text: str) -> set[str]:
    found = (word.lower() for piece in _PIECE.findall(text) for word in _CAMEL.split(piece))
    return {word for word in found if len(word) >= MIN_WORD and word not in STOP_WORDS}


def _names_in(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d]\w+", text))


def _brought(text: str) -> frozenset[str]:
    """Return the names of packages that a text imports or requires."""
    lines = [found["what"] for found in _IMPORT.finditer(text)]
    lines += [line for group in _GROUPED.findall(text) for line in group.splitlines()]
    pieces = {piece for line in lines for piece in re.split(r"[^\w-]+", line)}
    pieces |= {piece for image in _IMAGE.findall(text) for piece in re.split(r"[^a-z]+", image)}
    return frozenset(each.lower() for each in pieces if len(each) > MIN_WORD and each.lower() not in _EVERYWHERE)


_INSTALLS = re.compile(r"\b(?:install|add|get|require|i)\b")
_INTO = frozenset({"-p", "--path", "-t", "--target", "-r", "--requirement", "-c", "-C", "--prefix"})
"""Options of installers before a place, not a package."""
_INSTALL_WORDS = frozenset("install add get require role i run dev global pip pip3 npm uv".split())
