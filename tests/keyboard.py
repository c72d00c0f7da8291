"""Use a page by its keyboard alone, and check on the way that one sees where one is."""

from playwright.sync_api import Locator, Page, expect

MOST_STEPS = 60  # of Tab until a control is reached
# what shows the focus: the element itself, the label that covers a hidden box, or the frame around a field
_SHOWN = """() => {
  const at = document.activeElement;
  if (at === document.body) return "nothing";
  const shows = (each) => {
    const style = getComputedStyle(each);
    return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
  };
  const isFramed = at.matches("textarea, [type=checkbox], [type=radio]");
  const around = isFramed ? [at.nextElementSibling, at.closest("form")] : [];
  return [at, ...around].some((each) => each && shows(each)) ? "" : at.outerHTML.slice(0, 200);
}"""


def check_visible(page: Page) -> None:
    """Fail unless something has the focus and shows it."""
    hidden = page.evaluate(_SHOWN)
    assert not hidden, f"the focus cannot be seen: {hidden}"


def go_to(target: Locator, key: str = "Tab") -> None:
    """Press Tab (or Shift+Tab) until the target has the focus. Each step on the way is visible."""
    page = target.page
    expect(target).to_be_visible()
    # found at once: a swap could replace an element that is asked later
    focused = target.and_(page.locator(":focus"))
    for _ in range(MOST_STEPS):
        if focused.count():
            return
        page.keyboard.press(key)
        check_visible(page)
    raise AssertionError(f"{target} is not reached by {key}")


def press(target: Locator, key: str = "Enter", back: str = "Tab") -> None:
    """Go to a control and press a key there."""
    go_to(target, back)
    target.page.keyboard.press(key)


def write(target: Locator, text: str) -> None:
    """Go to a field and replace its text."""
    go_to(target)
    target.page.keyboard.press("Control+A")
    target.page.keyboard.type(text)


def choose(target: Locator, label: str) -> None:
    """Go to a list and choose an entry by typing its first letters."""
    go_to(target)
    target.page.keyboard.type(label)
    expect(target.locator("option:checked")).to_have_text(label)


def expect_focus(target: Locator) -> None:
    """Wait until the target has the focus, and fail unless it shows it. htmx moves it 20 ms after a swap."""
    expect(target).to_be_focused()
    check_visible(target.page)
