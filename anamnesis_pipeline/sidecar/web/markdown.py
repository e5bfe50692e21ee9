"""Render an LLM's Markdown as safe HTML: it is stored text, and may repeat untrusted input.

HTML in it stays text. Nothing is fetched: an image becomes a link, since loading it from another host would reveal the
content of the answer.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape
from typing_extensions import override

from anamnesis_pipeline.parsing.text.unspaced_scripts import sought, words_in
from anamnesis_pipeline.search.words import content_words, literal_tokens
from anamnesis_pipeline.store.index_terms import IndexTerms

HIGHEST_HEADING = 3
"""Answers follow the heading of their turn, which has level 2."""
LOWEST_HEADING = 6
OTHER_HOSTS = ("http://", "https://")
LINKS = (*OTHER_HOSTS, "mailto:", "/dashboard")
"""Allowed prefixes of a link's URL; of our own pages only those without side effects."""
_REGION = '<div class="scroll" tabindex="0" role="group" aria-label="Table">\n'


class _Parser(MarkdownIt):
    @override
    def validateLink(self, url: str) -> bool:
        return url.lower().startswith(LINKS)


def rendered(text: str) -> Markup:
    """Return the HTML of CommonMark with tables and strikethrough; it contains only our tags."""
    parser = _parser()
    tokens = parser.parse(text)
    for token in _flat(tokens):
        _fit(token)
    return Markup(parser.renderer.render(_with_regions(tokens), parser.options, {}))  # noqa: S704 - html is off


@cache
def _parser() -> MarkdownIt:
    return _Parser("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")


def _flat(tokens: Sequence[Token]) -> list[Token]:
    return [each for token in tokens for each in (token, *_flat(token.children or ()))]


def _fit(token: Token) -> None:
    """Lower headings below the page's own, protect links to other hosts, and drop inline styles."""
    if token.type in ("heading_open", "heading_close"):
        token.tag = f"h{min(int(token.tag[1:]) + HIGHEST_HEADING - 1, LOWEST_HEADING)}"
    elif token.type == "link_open" and str(token.attrGet("href")).lower().startswith(OTHER_HOSTS):
        token.attrs |= {"target": "_blank", "rel": "noopener noreferrer nofollow"}
    elif token.type in ("th_open", "td_open"):
        if "right" in str(token.attrs.pop("style", "")):
            token.attrs["class"] = "number"
        if token.type == "th_open":
            token.attrs["scope"] = "col"


def _with_regions(tokens: Sequence[Token]) -> list[Token]:
    """Wrap each table in a region that scrolls, also by keyboard."""
    placed: list[Token] = []
    for token in tokens:
        if token.type == "table_open":
            placed.append(Token("html_block", "", 0, content=_REGION))
        placed.append(token)
        if token.type == "table_close":
            placed.append(Token("html_block", "", 0, content="</div>\n"))
    return placed


# --- marking ---------------------------------------------------------------------------------------------

# Highlighting of query words in a text; everything else is escaped.

_TERMS = IndexTerms()
"""Words are compared as in the index: `retries` marks `retry`."""


def marked(text: str, question: str) -> Markup:
    """Return the text as HTML, with `<mark>` around the words of the query."""
    pieces, end = [], 0
    for start, stop in _merged(sorted(_spans(text, question))):
        pieces += [escape(text[end:start]), Markup("<mark>{}</mark>").format(text[start:stop])]
        end = stop
    return Markup("").join([*pieces, escape(text[end:])])


def _spans(text: str, question: str) -> Iterator[tuple[int, int]]:
    words, found = [sought(word) for word in content_words(question)], list(words_in(text))
    terms = _TERMS.of("stem_index", list({*words, *(sought(word) for word, _, _ in found)}))
    wanted = {terms[word] for word in words} - {()}
    yield from ((start, end) for word, start, end in found if terms[sought(word)] in wanted)
    for token in literal_tokens(question):
        yield from (match.span() for match in re.finditer(re.escape(token), text, re.IGNORECASE))


def _merged(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Merge spans that touch or overlap; sorted by start."""
    held: tuple[int, int] | None = None
    for start, stop in spans:
        if held is not None and start <= held[1]:
            held = (held[0], max(held[1], stop))
            continue
        if held is not None:
            yield held
        held = (start, stop)
    if held is not None:
        yield held
