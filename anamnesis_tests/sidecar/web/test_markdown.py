"""Answers as HTML: what an LLM writes becomes no tag, request or style of its own."""

from bs4 import BeautifulSoup

from anamnesis_pipeline.sidecar.web.markdown import rendered


def read(text: str) -> BeautifulSoup:
    return BeautifulSoup(rendered(text), "lxml")


def test_html_in_an_answer_stays_text() -> None:
    for text in (
        "<script>alert(1)</script>",
        "a <img src=x onerror=alert(1)> b",
        "`<b>`",
        "<div style='position:fixed'>\n\ntext\n\n</div>",
        '```py" onclick="x\n<script>alert(1)</script>\n```',
        "| <script>x</script> |\n|-|\n| <i>y</i> |",
    ):
        page = read(text)
        assert page.find(["script", "img", "b", "i"]) is None, text
        assert not [each for each in page.find_all(True) if {"style", "onclick", "onerror"} & set(each.attrs)]
        assert "<" in page.text


def test_only_web_mail_and_own_pages_become_links() -> None:
    for address in (
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "vscode://x",
        "//host/x",
    ):
        assert read(f"[click]({address}) <{address}>").find("a") is None, address
    page = read("[a](https://example.org/x) [b](/dashboard/episodes/mac/1)")
    other, own = page.find_all("a")
    assert (other["target"], other["rel"]) == ("_blank", ["noopener", "noreferrer", "nofollow"])
    assert "target" not in own.attrs
    page = read("![secret](https://example.org/x.png?told=secret)")
    assert page.find("img") is None, "a picture is a link and nothing is fetched"
    assert page.a["href"] == "https://example.org/x.png?told=secret"


def test_headings_go_below_those_of_the_page() -> None:
    page = read("# one\n\n## two\n\n###### six")
    assert [each.name for each in page.find_all(["h1", "h2", "h3", "h4", "h5", "h6"])] == ["h3", "h4", "h6"]


def test_table_scrolls_and_is_aligned_without_a_style() -> None:
    page = read("| name | n |\n|:-|-:|\n| a | 1 |\n\n> | x |\n> |-|\n> | y |")
    regions = page.select("div.scroll[tabindex='0'][role=group] > table")
    assert len(regions) == 2
    assert [each["scope"] for each in page.find_all("th")] == ["col"] * 3
    assert page.select("[style]") == []
    assert [each.text for each in page.select("td.number")] == ["1"]


def test_text_is_formatted() -> None:
    page = read("**bold** and ~~gone~~\n\n1. one\n2. two\n\n```python\nx < 1\n```")
    assert page.strong is not None
    assert page.s is not None
    assert [each.text for each in page.select("ol li")] == ["one", "two"]
    assert page.select_one("pre code").text == "x < 1\n"  # type: ignore[union-attr]
