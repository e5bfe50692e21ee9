"""Pages to look at, in the browser: Overview, Timeline, Context, Health, Events and Map."""

import re

import httpx
import pytest
import uvicorn
from playwright.sync_api import Page, Position, expect

from anamnesis_pipeline.pipeline.memory_map import make_map, map_path, save_map
from anamnesis_tests.browser.conftest import Post
from anamnesis_tests.browser.looks import MAX_SHIFT, PHONE, assert_anybody_can_use, layout_shift
from anamnesis_tests.sidecar.conftest import TestServices, wait_for

pytestmark = pytest.mark.timeout(300)

CRANE = "The harbour crane was moved to Thursday"


# --- overview and timeline


def test_overview_counts_draws_and_leads_on(page: Page, post: Post) -> None:
    post("crane", CRANE, timestamp="2026-03-01T10:00:00Z")
    post("pump", "The cistern pump was replaced", project="garden", timestamp="2026-03-02T10:00:00Z")
    page.goto("/dashboard")
    expect(page.locator(".figure", has_text="episodes").locator("b")).to_have_text("2")
    expect(page.locator("[data-chart=growth] canvas")).to_be_visible()
    assert_anybody_can_use(page)
    page.locator("#projects-title + .bars a", has_text="garden").click()
    page.wait_for_url("**/dashboard/episodes?project=garden&status=all")
    expect(page.locator("input.pick")).to_have_count(1)


@pytest.mark.screen(width=PHONE)
def test_growth_is_drawn_by_so_many_days_that_bars_are_seen(page: Page, post: Post) -> None:
    for day in range(1, 6):
        post(f"day{day}", f"Day {day} at the harbour", timestamp=f"2026-02-{day:02}T10:00:00Z")
    post("crane", CRANE, timestamp="2026-10-01T10:00:00Z")
    page.goto("/dashboard")
    drawn = "document.querySelector('[data-chart=growth]').plot.data[1]"
    expect(page.locator("#growth-step")).to_have_text("by week")
    assert page.evaluate(drawn) == [4, 1, 1]
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(page.locator("#growth-step")).to_have_text("by day")
    assert page.evaluate(drawn) == [1, 1, 1, 1, 1, 1]


@pytest.mark.screen(width=PHONE)
def test_badge_is_as_narrow_as_its_word(page: Page, services: TestServices) -> None:
    page.goto("/dashboard/health")
    badge = page.locator(".findings .badge").first
    expect(badge).to_be_visible()
    box = badge.bounding_box()
    assert box is not None
    assert box["width"] < PHONE / 3


def test_a_range_drawn_over_the_timeline_narrows_the_list(page: Page, post: Post) -> None:
    for day in range(1, 21):
        post(f"day{day}", f"Day {day} at the harbour", timestamp=f"2026-03-{day:02}T10:00:00Z")
    page.goto("/dashboard/timeline")
    expect(page.locator("#list-title + span")).to_have_text("20 in this range")
    box = page.locator("[data-chart=strip] .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 20, steps=5)
    page.mouse.up()
    page.wait_for_url(re.compile(r"since=2026-03-1\d&until=2026-03-"))
    shown = page.locator("main .lines a").all_text_contents()
    assert 0 < len(shown) < 20
    assert_anybody_can_use(page)
    assert "Day 1 at the harbour" not in shown
    page.get_by_role("link", name="All", exact=True).click()
    expect(page.locator("#list-title + span")).to_have_text("20 in this range")


# --- context


def test_prompt_shows_what_a_session_is_told_with_its_tokens(page: Page, post: Post, api: httpx.Client) -> None:
    post("crane", "Decision: the harbour crane moves on Thursday only", kind="decision", tags=["pinned"])
    page.goto("/dashboard/context")
    page.get_by_label("Project").fill("acme")
    page.get_by_label("Prompt; empty: the session starts").fill("when does the harbour crane move")
    page.get_by_role("button", name="Show what it receives").click()
    expect(page.get_by_role("region", name="Levels").locator("tbody tr")).to_have_count(4)
    assert_anybody_can_use(page)
    assert api.get("/api/episodes/crane").json()["retrieval_count"] == 0
    told = api.post("/api/context", json={"project": "acme", "max_tokens": 800}).json()
    expect(page.locator("#L0 .ends .muted")).to_have_text(f"{told['tokens']} tokens")
    page.get_by_role("button", name="Copy the text of L0").click()
    expect(page.locator(".toast", has_text="Copied.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == told["text"]
    page.locator("#L3 tbody a").first.click()
    page.wait_for_url("**/dashboard/episodes/crane")


@pytest.mark.screen(width=PHONE)
def test_words_of_the_levels_are_whole_on_a_phone(page: Page, post: Post) -> None:
    post("crane", CRANE)
    page.goto("/dashboard/context?project=acme&max_tokens=800")
    when = page.locator(".levels td:nth-child(2)").first
    assert when.evaluate("cell => getComputedStyle(cell).overflowWrap") == "normal"
    assert when.evaluate("cell => cell.clientWidth") >= 100
    assert_anybody_can_use(page)


# --- events


def test_an_event_appears_as_it_happens_and_waits_while_paused(page: Page, post: Post, api: httpx.Client) -> None:
    page.goto("/dashboard/events")
    expect(page.locator("#live-badge")).to_have_text("Live")
    post("crane", CRANE)
    row = page.locator("#rows tr").first
    expect(row).to_contain_text("Written")
    expect(row.get_by_role("link")).to_have_attribute("href", "/dashboard/episodes/crane")
    page.get_by_role("button", name="Pause").click()
    api.patch("/api/episodes/crane", json={"project": "garden"}).raise_for_status()
    expect(page.locator("#live-text")).to_have_text("1 new row since.")
    expect(page.locator("#rows tr")).to_have_count(1)
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#rows tr").first).to_contain_text("Edited")
    expect(page.locator("#rows tr").first).to_contain_text("garden")
    assert_anybody_can_use(page)


def be_seen(page: Page, is_seen: bool) -> None:
    """As when another tab comes before this one, or goes."""
    page.evaluate(
        """is_seen => { Object.defineProperty(document, "hidden", { configurable: true, get: () => !is_seen });
        document.dispatchEvent(new Event("visibilitychange")); }""",
        is_seen,
    )


def test_page_that_nobody_sees_has_no_stream(page: Page, post: Post, api: httpx.Client, server: uvicorn.Server) -> None:
    feed = server.config.app.state.event_feed  # type: ignore[union-attr]
    post("crane", CRANE)
    page.goto("/dashboard/events")
    post("pump", "The cistern pump was replaced", project="garden")
    expect(page.locator("#rows tr")).to_have_count(2)
    be_seen(page, False)
    wait_for(lambda: feed.watchers == 0)
    post("winch", "The winch was oiled", project="harbour")
    api.patch("/api/episodes/crane", json={"project": "garden"}).raise_for_status()
    be_seen(page, True)
    expect(page.locator("#live-badge")).to_have_text("Live")
    expect(page.locator("#rows .badge")).to_have_text(["Edited", "Written", "Written", "Written"])
    assert page.locator("#rows a.mono").all_text_contents() == ["crane", "winch", "pump", "crane"]
    assert feed.watchers == 1


def test_list_is_live_only_once_the_stream_is_there(page: Page) -> None:
    page.goto("/dashboard/events")
    expect(page.locator("#live-badge")).to_have_text("Live")
    page.get_by_role("button", name="Pause").click()
    page.route("**/dashboard/events/stream*", lambda _: None)  # as where all connections are taken
    be_seen(page, False)
    be_seen(page, True)
    expect(page.locator("#live-badge")).to_have_text("Paused")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#live-badge")).to_have_text("Connecting")


@pytest.mark.screen(width=PHONE)
def test_what_the_list_says_of_itself_moves_nothing_below_it(page: Page, post: Post) -> None:
    def top() -> float:
        box = page.locator("#events").bounding_box()
        assert box is not None
        return box["y"]

    post("crane", CRANE)
    page.goto("/dashboard/events")
    connecting = top()
    expect(page.locator("#live-badge")).to_have_text("Live")
    assert top() == connecting
    assert layout_shift(page) < MAX_SHIFT
    page.get_by_role("button", name="Pause").click()
    assert top() == connecting
    page.route("**/dashboard/events/stream*", lambda route: route.fulfill(status=429))
    be_seen(page, False)
    be_seen(page, True)
    expect(page.locator("#live-text")).to_contain_text("it may be busy with other pages. Trying again soon.")
    for width in (PHONE, 480, 600):
        page.set_viewport_size({"width": width, "height": 900})
        refused = top()
        page.get_by_role("button", name="Go on").or_(page.get_by_role("button", name="Pause")).click()
        expect(page.locator("#live-text")).not_to_contain_text("busy")
        assert top() == refused
        be_seen(page, True)
        expect(page.locator("#live-text")).to_contain_text("busy")


# --- map


@pytest.fixture
def _drawn(services: TestServices, post: Post) -> None:
    for number in range(40):
        post(f"e{number}", f"Crane number {number} at the harbour", project="acme" if number % 2 else "garden")
    active = services.store.spaces.active()
    assert active is not None
    save_map(map_path(services.settings.home), make_map(services.store, active))


def point_at_a_dot(page: Page) -> tuple[float, float]:
    """Put the pointer on a dot of the map that is drawn; where that is."""
    expect(page.locator("#map-wait")).to_be_hidden()
    at = page.evaluate(
        """() => { const map = document.getElementById("map"), box = map.getBoundingClientRect();
        const { data, width, height } = map.getContext("2d").getImageData(0, 0, map.width, map.height);
        const same = (at, other) => [0, 1, 2].every((n) => data[4 * at + n] === data[4 * other + n]);
        for (let y = 8; y < height - 8; y++) for (let x = 8; x < width - 8; x++)
          if (!same(y * width + x, 0) && !same((y + 4) * width + x, 0))
            return [box.x + (x * box.width) / width, box.y + ((y + 2) * box.height) / height];
        return null; }"""
    )
    assert at is not None, "no dot is drawn"
    page.mouse.move(*at)
    return float(at[0]), float(at[1])


@pytest.mark.parametrize(
    "words",
    [
        "Point at a dot to see its title, click to open it.",
        pytest.param(
            "Tap a dot to see its title, then tap the title to open it.",
            marks=pytest.mark.screen(width=PHONE, touch=True),
        ),
    ],
)
@pytest.mark.usefixtures("_drawn")
def test_the_map_says_what_a_pointer_or_a_finger_does(page: Page, words: str) -> None:
    page.goto("/dashboard/map")
    expect(page.locator("#map-told > :visible")).to_have_text(words)


@pytest.mark.usefixtures("_drawn")
def test_dot_says_what_it_is_and_only_a_plain_click_opens_it(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/map")
    at = point_at_a_dot(page)
    link = page.locator("#map-told a")
    expect(link).to_contain_text("at the harbour")
    address = link.get_attribute("href")
    page.mouse.click(*at, button="right")
    page.keyboard.press("Escape")
    for pressed in ({"button": "middle"}, {"modifiers": ["Control"]}):
        with page.context.expect_page() as opened:
            page.locator("#map").click(position=within(page, at), **pressed)  # type: ignore[arg-type]
        opened.value.wait_for_url(f"**{address}")
        opened.value.close()
    expect(page).to_have_url(re.compile("/dashboard/map$"))
    page.mouse.click(*at)
    page.wait_for_url(f"**{address}")
    name = str(address).rpartition("/")[2]
    expect(page.locator("h1")).to_have_text(api.get(f"/api/episodes/{name}").json()["summary"])


def within(page: Page, at: tuple[float, float]) -> Position:
    """The same place, counted from the corner of the map."""
    box = page.locator("#map").bounding_box()
    assert box is not None
    return {"x": at[0] - box["x"], "y": at[1] - box["y"]}


@pytest.mark.usefixtures("_drawn")
def test_by_keys_the_dot_nearest_the_middle_is_told_and_opened(page: Page) -> None:
    page.goto("/dashboard/map")
    expect(page.locator("#map-wait")).to_be_hidden()
    page.keyboard.press("Tab")  # what is focused by keys from now on shows it
    page.locator("#map").focus()
    for key in ("ArrowRight", "+", "ArrowLeft"):
        page.keyboard.press(key)
    expect(page.locator("#map-told a")).to_be_visible()
    link = page.locator("#map-told a").get_attribute("href")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{link}")


@pytest.mark.usefixtures("_drawn")
def test_the_map_is_zoomed_searched_and_narrowed_by_project(page: Page) -> None:
    def picture() -> str:
        page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        return str(page.evaluate("document.getElementById('map').toDataURL()"))

    page.goto("/dashboard/map")
    expect(page.locator("#map-wait")).to_be_hidden()
    whole = picture()
    page.get_by_role("button", name="Zoom in").click()
    closer = picture()
    assert closer != whole
    page.locator("#map").focus()
    page.keyboard.press("ArrowLeft")
    assert picture() != closer
    page.get_by_role("button", name="Whole map").click()
    assert picture() == whole
    page.get_by_role("searchbox", name="Find on the map").fill("crane number 7")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("#map-found")).to_have_text(re.compile("episodes"))
    assert picture() != whole
    expect(page.get_by_role("list", name="The best of what was found").get_by_role("link").first).to_be_visible()
    page.get_by_role("button", name=re.compile("garden")).click()
    expect(page.get_by_role("button", name=re.compile("garden"))).to_have_attribute("aria-pressed", "true")
    page.locator("summary", has_text="As a table").click()
    expect(
        page.get_by_role("region", name="Projects and the episodes in their middle").locator("tbody tr")
    ).to_have_count(2)
    assert_anybody_can_use(page)


def test_open_page_offers_a_map_and_shows_it_once_it_is_drawn(page: Page, post: Post, services: TestServices) -> None:
    post("crane", CRANE)
    page.goto("/dashboard/map")
    expect(page.locator(".empty")).to_contain_text("29 to go")
    for number in range(29):
        post(f"e{number}", f"Crane number {number} at the harbour")
    expect(page.get_by_role("button", name="Draw the map")).to_be_visible(timeout=15_000)
    active = services.store.spaces.active()
    assert active is not None
    save_map(map_path(services.settings.home), make_map(services.store, active))
    expect(page.get_by_role("img", name="Map of 30 episodes")).to_be_visible(timeout=15_000)
