"""Markdown that an LLM wrote to HTML that is safe to show: it is stored text, and may repeat what anybody said.

HTML in it stays text. Nothing is fetched: a picture becomes a link to it, since asking another host for one would tell
it what the answer says.
"""

from collections.abc import Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

HIGHEST_HEADING = 3
"""An answer stands under the heading of its turn, which is a second one."""
LOWEST_HEADING = 6
OTHER_HOSTS = ("http://", "https://")
LINKS = (*OTHER_HOSTS, "mailto:", "/dashboard")
"""How an address has to begin to become a link; of our own pages only those that change nothing when opened."""
_REGION = '<div class="scroll" tabindex="0" role="group" aria-label="Table">\n'


def rendered(text: str) -> Markup:
    """The HTML of CommonMark with tables and strikethrough; every tag in it is one of ours."""
    parser = _parser()
    tokens = parser.parse(text)
    for token in _flat(tokens):
        _fit(token)
    return Markup(parser.renderer.render(_with_regions(tokens), parser.options, {}))  # noqa: S704 - html is off


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
    parser.validateLink = lambda url: url.lower().startswith(LINKS)  # type: ignore[method-assign]
    return parser


def _flat(tokens: Sequence[Token]) -> list[Token]:
    return [each for token in tokens for each in (token, *_flat(token.children or ()))]


def _fit(token: Token) -> None:
    """Headings below the page's own, links that tell other hosts nothing, and no style of an element's own."""
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
    """Each table in a place of its own that scrolls, also by keyboard."""
    placed: list[Token] = []
    for token in tokens:
        if token.type == "table_open":
            placed.append(Token("html_block", "", 0, content=_REGION))
        placed.append(token)
        if token.type == "table_close":
            placed.append(Token("html_block", "", 0, content="</div>\n"))
    return placed
