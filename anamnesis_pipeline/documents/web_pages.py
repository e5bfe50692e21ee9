"""HTML as Markdown. Scripts are dropped, and nothing that a page refers to is fetched."""

import re

from anamnesis_pipeline.documents.charset import decoded
from anamnesis_pipeline.documents.plain import as_markdown, tidy

MOST_HTML_CHARS = 2_000_000
"""Of a longer page the rest is left out, and a note says so; its tree takes some twenty times as much memory."""

_DROPPED = [
    "script",
    "style",
    "noscript",
    "template",
    "svg",
    "math",
    "iframe",
    "object",
    "head",
    "canvas",
    "select",
    "button",
]
_XML_MARK = re.compile(r"\A\s*<\?xml[^<>]{0,200}\?>")
_DECLARED = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w-]{2,20})", re.IGNORECASE)


def html_text(data: bytes) -> str:
    """The text of a page, in the charset that it declares, with its headings, lists, links and tables."""
    declared = _DECLARED.search(data[:4096])
    if declared and not data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        try:
            return markdown_of(data.decode(declared.group(1).decode("ascii")))
        except (LookupError, UnicodeDecodeError):
            pass
    return markdown_of(decoded(data))


def markdown_of(html: str) -> str:
    """`html` as Markdown."""
    import bs4
    from markdownify import ATX, MarkdownConverter

    page = bs4.BeautifulSoup(_XML_MARK.sub("", html[:MOST_HTML_CHARS], count=1), "lxml")
    title = page.title.get_text(" ", strip=True) if page.title else ""
    for tag in page(_DROPPED):
        tag.decompose()
    for image in page("img"):
        image.replace_with(str(image.get("alt") or ""))
    try:
        text = MarkdownConverter(heading_style=ATX, bullets="-", escape_misc=False).convert_soup(page)
    except RecursionError:  # nested so deep that only its words are worth reading
        text = as_markdown(page.get_text("\n"))
    if title and not page.find("h1"):
        text = f"# {title}\n\n{text}"
    left = len(html) - MOST_HTML_CHARS
    return tidy(text) + (f"\n\n[{left} more characters of this page were left out]" if left > 0 else "")
