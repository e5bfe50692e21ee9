"""Claims of a text that a project's files can prove wrong: paths, functions, commands, dependencies, variables. Pure.

Precision before recall: placeholders, plans, negations, history, examples, produced files and URLs are no claims.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from anamnesis_pipeline.parsing.documents.languages import CODE, CONFIG, CONVERTED, TEXTS

MAX_TEXT_CHARS = 200_000
MAX_CLAIMS = 400
"""Claims of one text, the first ones."""
MAX_QUOTE_CHARS = 400
MAX_SENTENCE_CHARS = 2_000


class ClaimKind(StrEnum):
    """What a claim names."""

    PATH = "path"
    FUNCTION = "function"
    SCRIPT = "script"
    """A script of `package.json`."""
    TARGET = "target"
    """A target of a Makefile."""
    DEPENDENCY = "dependency"
    VARIABLE = "variable"
    """An environment variable."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that a text says is there. `quote`: verbatim; `line`: of the text, from 0."""

    kind: ClaimKind
    value: str
    quote: str
    line: int


_CODE_EXTENSIONS = frozenset(" ".join(CODE.values()).split())
_EXTENSIONS = _CODE_EXTENSIONS | frozenset(" ".join((*CONFIG.values(), *TEXTS.values(), *CONVERTED.values())).split())
_FENCE = re.compile(
    r"^[ ]{0,3}(?P<mark>```+|~~~+)[ ]*(?P<language>\w*)[^\n]*\n(?P<body>.*?)^[ ]{0,3}(?P=mark)", re.M | re.S
)
_SHELL = frozenset({"", "bash", "sh", "shell", "zsh", "console"})
_BLOCK = re.compile(r"\n[ \t]*\n|\n(?=[ \t]*(?:[-*+]|\d+[.)]|#+|\|)[ \t])|\n(?=[ \t]*\|)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^a-z\s])")
_CLAUSE = re.compile(r"(?:`[^`\n]*`|[^;])+;?|;")
_SPAN = re.compile(r"`([^`\n]{1,300})`|\[[^\]\n]*\]\(([^)\s]{1,300})\)")
_PLAIN = re.compile(r"(?<![\w/`:.@~$(<\[-])(?:[\w.-]+/)+[\w.-]+\.[a-z]\w{0,9}(?![\w/*<{-])")
_NO_CLAIM = re.compile(
    r"""\b(?: no | not | never | without | none | nor | missing | absent | nonexistent | delet\w+ | remov\w+
        | dropp?(?:ed|ing) | gone | renam\w+ | mov(?:ed|ing) | replac\w+ | migrat(?:ed|ing) | former(?:ly)?
        | old(?:er)? | legacy | deprecat\w+ | obsolete | used\ to | was | were | had | previous(?:ly)? | earlier
        | instead | avoid | will | would | could | might | should\ (?:have|be|add|create) | shall | going\ to
        | plan(?:s|ned|ning)? | todo | tbd | eventually | later | future | propos\w+ | suggest\w* | ideas?
        | e\.g | examples? | for\ instance | such\ as | suppose | imagine | hypothetical\w* | let's | we'll
        | i'll | if | unless | optional(?:ly)? | upstream | another\ (?:repo|project)\w*
        | other\ (?:repo|project)\w* | not\ yet | yet\ to | need(?:s|ed)?\ to | want(?:s)?\ to | kein\w* | nicht
        | ohne | gelöscht | entfernt | umbenannt | früher | wurde\w* | soll\w* | statt
        | (?:wird|werden)(?! [^.;]* \s (?!geschrieben|gespeichert|generiert|exportiert)
          (?: \w+iert | ge\w{3,}(?:t|en) | (?:be|ver|er)\w+t ) \W*$ )
    )\b | n't\b | n’t\b | ~~""",
    re.IGNORECASE | re.VERBOSE,
)
"""Sentences that say what is not there, not yet, no more, or only perhaps."""
_PRODUCES = re.compile(
    r"\b(?:add|creat|writ|sav|stor|generat|produc|output|emit|dump|export|download|render|touch|mkdir|name|call)\w*\s+"
    r"(?:(?:a|an|the|new|file|files|it|them|this|that|results?|output|logs?|report|to|into|as|in)\s+){0,5}[\"'(]*$",
    re.IGNORECASE,
)
"""Before a path that a program or a reader makes."""
_PRODUCED = re.compile(
    r"^[`\"')]*\s*(?:\([^)]*\)\s*)?(?:is|are|gets?)\s+(?:\w+ly\s+)?(?:generated|created|written|produced|git-?ignored|ignored)",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"""[<>{}*?$|\\…"'=,;()!\s\[\]] | \.\.\. | :// | ^~ | ^@
      | (?:^|[/._-])(?: path[/_-]to | to[/_-]path | your[\w-]* | my[_-]\w+ | foo(?:bar)? | bar | baz
        | qux | xxx+ | yyyy | example[s]? | some[_-]?\w* | placeholder | NAME | FILE | FILENAME | PATH | DIR | ID
        | SLUG | TOPIC | PROJECT | X | Y | N )(?=$|[/._-])""",
    re.VERBOSE,
)
_PRODUCTS = frozenset(
    "node.js next.js vue.js nuxt.js three.js express.js d3.js chart.js p5.js react.js ember.js backbone.js angular.js "
    "alpine.js discord.js moment.js socket.io asp.net".split()
)
"""Names of products that look like files."""
_EVERYWHERE = frozenset("claude.md claude.local.md agents.md memory.md skill.md readme.md".split())
"""Names of files that are in many places, so that a bare name tells of none."""
_FUNCTION_SPAN = re.compile(r"(?:[A-Za-z_]\w*(?:\.|::))*([A-Za-z_]\w{2,})\(\)")
_NAMED = re.compile(
    r"\b(?:functions?|methods?|class(?:es)?|helpers?|decorators?|fixtures?|structs?|interfaces?|hooks?|Funktion|Klasse)\s+$",
    re.I,
)
_NAMES = re.compile(
    r"^\s+(?:function|method|class|helper|decorator|fixture|struct|interface|hook|Funktion|Klasse)\b", re.I
)
_DEFINED = re.compile(
    r"^\s*(?:\([^)]*\)\s*)?(?:is|are|lives?|sits?|defined)?\s*(?:defined\s+)?(?:in|at|from)\s+`[^`]+\.\w+`"
)
_IDENTIFIER = re.compile(r"(?:[A-Za-z_]\w*(?:\.|::))*([A-Za-z_]\w{2,})(?:\(\))?")
_WORDS = re.compile(r"[a-z0-9]_[a-z0-9]|[a-z][A-Z]", re.ASCII)
"""In a name of several words, which no sentence has by chance."""
_VARIABLE = re.compile(r"(?:export\s+|\$\{?)?([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\}?(?:=\S*)?")
_VARIABLES = re.compile(
    r"\b(?:set(?:ting)?|unset|variables?|env(?:ironment)?|export(?:s|ed)?|Umgebungsvariable\w*)\b", re.IGNORECASE
)
_SETTING = re.compile(r"_(?:URL|URI|DSN|HOST|PORT|TOKEN|KEY|SECRET|PASSWORD|USER|PATH|DIR|TIMEOUT|TTL)$")
"""How variables end that nothing but settings are called."""
_CALL = re.compile(r"(?<![\w.`/:])([A-Za-z_]\w*)\(\)")
"""A function in the text, outside of backticks."""
_FOREIGN_VARIABLE = re.compile(
    r"(?:AWS|GITHUB|GITLAB|GH|CI|PYTHON|PYTEST|PIP|UV|NODE|NPM|HTTP|HTTPS|NO|XDG|LC|CUDA|HF|OPENAI|ANTHROPIC|CLAUDE|GOOGLE|"
    r"AZURE|DOCKER|KUBE|SSH|GIT|LD|DYLD|JAVA|CARGO|RUST|GO|POSTGRES|PG|MYSQL|REDIS|MONGO|TF|TERM|DB)_"
)
"""Variables that libraries and programs read by themselves."""
_PINNED = re.compile(r"(@?[A-Za-z][\w.-]*(?:/[\w.-]+)?)(?:\[[\w,-]+\])?\s?(?:==|>=|~=|\^|@\^?(?=\d))\s?v?\d[\w.*]*")
_DEPENDS = re.compile(
    r"\b(?:depends? on|häng(?:t|en) von|dépend(?:ent|ons)? de|depende[nm]? de|(?:package|library|crate|gem)"
    r"|Pakete?s?|Bibliothek|paquet|bibliothèque|paquete|biblioteca)\s+(?:the\s+)?$",
    re.IGNORECASE,
)
_PACKAGE_NAMED = re.compile(r"\s+(?:package|library|crate|gem)\b", re.IGNORECASE)
_PACKAGE = re.compile(r"@?[a-z][\w.-]*(?:/[\w.-]+)?", re.IGNORECASE)
_RUNTIMES = frozenset(
    "python python3 node nodejs npm pnpm yarn bun deno postgres postgresql redis docker go golang rust java mysql "
    "mariadb mongodb sqlite ruby php git make bash cuda linux macos ubuntu debian kubernetes".split()
)
_SCRIPT = re.compile(
    r"(?:npm|pnpm|yarn|bun)\s+run(?:-script)?\s+([A-Za-z][\w:.-]*)(?=$|\s)|npm\s+(test|start)(?=$|\s)"
    r"|(?:pnpm|yarn)\s+(\w+(?::[\w-]+)+|test|start|dev|build|lint|typecheck|format|preview)(?=$|\s)"
)
_MAKE = re.compile(r"make((?:\s+[A-Za-z][\w.-]*)+)(?=\s|$)")
_RUN = re.compile(
    r"(?:\S*/)?(?:python3?|pytest|node|bash|sh|zsh|ruby|tsx|ts-node|deno run)\s+((?:\./)?[\w./-]+)(?=$|[\s:])"
)
_EXECUTED = re.compile(r"((?:\./|[\w-]+/)[\w./-]+\.(?:sh|py|bash|js|ts|rb))(?=$|\s)")
_PREFIX = re.compile(r"^(?:[$>]\s+|(?:[A-Z_][A-Z0-9_]*=\S*\s+)+|(?:uv run|poetry run|npx|sudo|time|nice|exec)\s+)+")


def claims_of(text: str) -> list[Claim]:
    """Return what a Markdown text claims, in order, each kind and value once."""
    text = text[:MAX_TEXT_CHARS]
    found: dict[tuple[ClaimKind, str], Claim] = {}
    for claim in _all(text):
        found.setdefault((claim.kind, claim.value), claim)
        if len(found) >= MAX_CLAIMS:
            break
    return sorted(found.values(), key=lambda each: each.line)


def path_of(text: str) -> str:
    """Return the path that a text is, relative or absolute, without line numbers; empty: it is none."""
    text = re.sub(r"(?:::.*|#.*|:\d+(?:[:-]\d+)*:?)$", "", text.strip()).removeprefix("./")
    if not text or _PLACEHOLDER.search(text) or text.startswith(("-", "..")) or text.lower() in _PRODUCTS | _EVERYWHERE:
        return ""
    name = text.rstrip("/").rpartition("/")[2]
    extension = name.rpartition(".")[2].lower() if "." in name.lstrip(".") else ""
    if text.endswith("/"):
        return text if re.fullmatch(r"/?(?:[\w.-]+/)+", text) else ""
    is_file = extension in (_EXTENSIONS if "/" in text else _CODE_EXTENSIONS | {"md"})
    is_whole = re.fullmatch(r"/?(?:[\w.@+-]+/)*[\w.@+-]+", text) and len(name) > len(extension) + 1
    return text if is_file and is_whole and not re.fullmatch(r"[\w-]+(?:\.[\w-]+)+/.*", text) else ""


def _all(text: str) -> Iterator[Claim]:
    """Yield the claims of fenced commands, then those of the sentences outside of fences."""
    for fence in _FENCE.finditer(text):
        if fence["language"].lower() in _SHELL:
            at = fence.start("body")
            for line in fence["body"].splitlines(keepends=True):
                command = line.split(" #")[0].strip()
                if not _NO_CLAIM.search(line):
                    yield from _of_command(command, line.strip()[:MAX_QUOTE_CHARS], text.count("\n", 0, at))
                at += len(line)
    prose = _FENCE.sub(lambda found: "\n" * found[0].count("\n") + " " * (len(found[0]) - found[0].count("\n")), text)
    for start, end in _sentences(prose):
        sentence, line = text[start:end], text.count("\n", 0, start)
        at = 0
        for clause in _CLAUSE.findall(sentence) if len(sentence) <= MAX_SENTENCE_CHARS else ():
            if not _NO_CLAIM.search(_without_spans(clause)):
                yield from _of_clause(clause, sentence, at, line)
            at += len(clause)


def _without_spans(sentence: str) -> str:
    return _SPAN.sub("``", sentence)


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of the sentences, list items, table rows and headings of a text."""
    at = 0
    for block in [*_BLOCK.finditer(text), None]:
        until = block.start() if block else len(text)
        start = at
        for cut in [*_SENTENCE.finditer(text, at, until), None]:
            end = cut.start() if cut else until
            piece = text[start:end]
            if piece.strip():
                yield start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
            start = cut.end() if cut else until
        at = block.end() if block else until


def _of_clause(clause: str, sentence: str, at: int, line: int) -> Iterator[Claim]:
    """Yield the claims of a clause.

    :param at: where it begins in its sentence, which is in line `line` of the text.
    """
    spans = list(_SPAN.finditer(clause))
    for span in spans:
        before, behind = clause[: span.start()], clause[span.end() :]
        quote = _quote(sentence, at + span.start())
        its = line + sentence.count("\n", 0, at + span.start())
        if path := path_of(span[1] or span[2]):
            if not _PRODUCES.search(before) and not _PRODUCED.search(behind):
                yield Claim(ClaimKind.PATH, path, quote, its)
        elif span[1] is not None:
            yield from _of_command(span[1], quote, its)
            yield from _of_name(span[1], before, behind, clause, quote, its)
    for call in _CALL.finditer(_SPAN.sub(lambda span: "`" * len(span[0]), clause)):
        if _WORDS.search(call[1]):
            yield Claim(ClaimKind.FUNCTION, call[1], _quote(sentence, at + call.start()), line)
    for plain in _PLAIN.finditer(_SPAN.sub(lambda span: "`" * len(span[0]), clause)):
        before, behind = clause[: plain.start()], clause[plain.end() :]
        if (path := path_of(plain[0])) and not _PRODUCES.search(before) and not _PRODUCED.search(behind):
            its = line + sentence.count("\n", 0, at + plain.start())
            yield Claim(ClaimKind.PATH, path, _quote(sentence, at + plain.start()), its)


def _of_name(code: str, before: str, behind: str, sentence: str, quote: str, line: int) -> Iterator[Claim]:
    """Yield the claim of a function, variable or dependency between backticks."""
    called, named = _FUNCTION_SPAN.fullmatch(code), _IDENTIFIER.fullmatch(code)
    is_named = bool(_NAMED.search(before) or _NAMES.match(behind) or _DEFINED.match(behind))
    variable = _VARIABLE.fullmatch(code)
    if variable and (_SETTING.search(code) or _VARIABLES.search(f"{_without_spans(sentence)} {code}")):
        if not _FOREIGN_VARIABLE.match(variable[1]):
            yield Claim(ClaimKind.VARIABLE, variable[1], quote, line)
    elif (called or (named and (is_named or "." in code))) and not code.isupper():
        name = code.removesuffix("()").replace("::", ".").removeprefix("self.").removeprefix("this.")
        last = name.rpartition(".")[2]
        if _WORDS.search(last) or (called and is_named):
            yield Claim(ClaimKind.FUNCTION, name, quote, line)
    elif pinned := _PINNED.fullmatch(code):
        if pinned[1].lower() not in _RUNTIMES and ("/" not in pinned[1] or pinned[1].startswith("@")):
            yield Claim(ClaimKind.DEPENDENCY, pinned[1], quote, line)
    elif (
        (_DEPENDS.search(before) or _PACKAGE_NAMED.match(behind))
        and _PACKAGE.fullmatch(code)
        and code.lower() not in _RUNTIMES
    ):
        yield Claim(ClaimKind.DEPENDENCY, code, quote, line)


def _of_command(command: str, quote: str, line: int) -> Iterator[Claim]:
    for part in re.split(r"\s*(?:&&|\|\||;)\s*", command)[:10]:
        part = _PREFIX.sub("", part.strip())
        if script := _SCRIPT.match(part):
            yield Claim(ClaimKind.SCRIPT, next(filter(None, script.groups())), quote, line)
        elif made := _MAKE.match(part):
            for target in made[1].split():
                yield Claim(ClaimKind.TARGET, target, quote, line)
        elif (run := _RUN.match(part) or _EXECUTED.match(part)) and (path := path_of(run[1])):
            yield Claim(ClaimKind.PATH, path, quote, line)


def _quote(sentence: str, at: int) -> str:
    """Return a sentence, or what of it is around a place, verbatim."""
    if len(sentence) <= MAX_QUOTE_CHARS:
        return sentence
    start = max(0, at - MAX_QUOTE_CHARS // 2)
    return sentence[start : start + MAX_QUOTE_CHARS].strip()
