"""A window that notices whatever a page does beyond what its own server told it to do."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from playwright.sync_api import Page

from tests.browser import Visitor
from tests.injection.corpus import RAN

# What a page must not have, and all text that it shows. An attribute with the mark came from a text that was taken for
# HTML, but for those that hold what people see or typed, and links within the site and, in an answer, to others.
LOOK = """(mark) => {
  const found = window[mark] === undefined ? [] : ["a script ran"], shown = [];
  const told = new Set(["value", "title", "aria-label", "placeholder", "alt", "label"]);
  const isOurs = (each, value) => {
    const to = new URL(value, location.href);
    if (!["http:", "https:"].includes(to.protocol)) return false;
    if (to.origin === location.origin) return to.pathname !== `/${mark}`;
    return each.localName === "a" && each.closest(".text") !== null && each.rel.includes("noopener");
  };
  for (const each of document.querySelectorAll("*")) {
    const tag = each.localName;
    if (["base", "iframe", "object", "embed"].includes(tag)) found.push(`<${tag}>`);
    if (["script", "style"].includes(tag) && each.textContent.includes(mark)) found.push(`<${tag}> with the mark`);
    for (const { name, value } of each.attributes) {
      if (name.startsWith("on")) found.push(`${tag} ${name}`);
      if (name.includes(mark)) found.push(`${tag} ${name}`);
      if (!value.includes(mark)) continue;
      if (told.has(name)) shown.push(value);
      else if (tag === "code" && name === "class" && /^language-\\S+$/.test(value)) continue; // of a block of code
      else if (!["href", "action", "data-run"].includes(name)) found.push(`${tag} ${name}=${value}`);
      else if (name !== "data-run" && !isOurs(each, value)) found.push(`${tag} ${name}=${value}`);
    }
    if (["input", "textarea"].includes(tag)) shown.push(each.value);
  }
  shown.push(document.documentElement.textContent);
  return [found, shown.join("\\n")];
}"""


@dataclass(kw_only=True)
class Watched:
    """A page under watch. `faults`: what it did or has that it should not; `shown`: all text that it showed."""

    page: Page
    host: str
    faults: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("request", self._requested)
        self.page.on("dialog", self._asked)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.note(f"error: {error}"))
        self.page.on("popup", lambda popup: self.note(f"popup: {popup.url}"))

    def note(self, fault: str) -> None:
        """Remember a fault, with the page it is of."""
        self.faults.append(f"{urlsplit(self.page.url).path}: {fault[:300]}")

    def open(self, address: str, *, status: int = 200) -> None:
        """Open an address and look at it."""
        answer = self.page.goto(address)
        assert answer is not None
        if answer.status != status:
            self.note(f"answered {answer.status} to {address[:200]}")
        self.look()

    def look(self) -> None:
        """Look for what hostile text left in the page, and remember what it shows."""
        found, shown = self.page.evaluate(LOOK, RAN)
        for fault in found:
            self.note(fault)
        self.shown.append(" ".join(shown.split()))

    def shows(self, text: str) -> bool:
        """Whether a page that was looked at showed this text."""
        return any(text in each for each in self.shown)

    def _requested(self, request: Any) -> None:
        at = urlsplit(request.url)
        if at.scheme != "data" and (at.netloc != self.host or at.path == f"/{RAN}"):
            self.note(f"asked for {request.url}")

    def _asked(self, dialog: Any) -> None:
        self.note(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _heard(self, message: Any) -> None:
        said = message.text
        if message.location["url"].endswith("/favicon.ico"):
            return  # of a part of a page that was opened by itself
        if message.type == "error" or "Content Security Policy" in said or "Alpine" in said:
            self.note(f"console: {said}")


def window(visitor: Visitor, user: User) -> Watched:
    """A window of this user under watch."""
    return Watched(page=visitor.window(user), host=visitor.site.url.removeprefix("http://"))
