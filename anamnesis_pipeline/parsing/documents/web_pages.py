"""Convert HTML to Markdown. Scripts are dropped, and no linked resource is fetched."""

import re

from anamnesis_pipeline.parsing.documents.charset import decoded
from anamnesis_pipeline.parsing.documents.plain import as_markdown, tidy

MAX_HTML_CHARS = 2_000_000
"""The rest of a longer page is left out, with a note; its tree takes about twenty times as much memory."""

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
    """Return the text of a page, in its declared charset, with its headings, lists, links and tables."""
    declared = _DECLARED.search(data[:4096])
    if declared and not data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        try:
            return markdown_of(data.decode(declared.group(1).decode("ascii")))
        except (LookupError, UnicodeDecodeError):
            pass
    return markdown_of(decoded(data))


def markdown_of(html: str) -> str:
    """Return `html` as Markdown."""
    import bs4
    from markdownify import ATX, MarkdownConverter

    page = bs4.BeautifulSoup(_XML_MARK.sub("", html[:MAX_HTML_CHARS], count=1), "lxml")
    title = page.title.get_text(" ", strip=True) if page.title else ""
    for tag in page(_DROPPED):
        tag.decompose()
    for image in page("img"):
        image.replace_with(str(image.get("alt") or ""))
    try:
        text = MarkdownConverter(heading_style=ATX, bullets="-", escape_misc=False).convert_soup(page)
    except RecursionError:  # nested so deep that only its words are read
        text = as_markdown(page.get_text("\n"))
    if title and not page.find("h1"):
        text = f"# {title}\n\n{text}"
    left = len(html) - MAX_HTML_CHARS
    return tidy(text) + (f"\n\n[{left} more characters of this page were left out]" if left > 0 else "")
