// The page of a conversation: it follows the session's events, and asks the server for the parts that changed.

import { LiveAnswer } from "./live.js";
import "./composer.js";

const updater = document.getElementById("updater");
const scroll = document.getElementById("scroll");
const live = new LiveAnswer();
const TEXT = new Set(["delta", "snapshot"]);
const TYPES = ["turn_queued", "turn_start", "tool_call", "tool_output", "planning", "plan", "replan", "step_start",
  "step_complete", "waiting", "done", "message", "delivery", "turn_end", "delta", "snapshot", "status"];

let cursor = updater.dataset.cursor;
let source = null;
let retryIn = 1000;
let atEnd = true;

function connection(text) {
  const place = document.getElementById("connection");
  if (place.textContent === text) return;
  place.textContent = text;
  place.classList.toggle("off", Boolean(text));
}

let refreshing = 0;
function refresh() {
  if (refreshing) return;
  refreshing = setTimeout(() => { refreshing = 0; document.body.dispatchEvent(new Event("refresh")); }, 30);
}

function listChanged() { document.body.dispatchEvent(new Event("list-changed")); }

function hear(event) {
  const data = JSON.parse(event.data);
  if (event.lastEventId) cursor = event.lastEventId;
  const { content } = data;
  if (TEXT.has(data.type) || content.status === "retrying") {
    live.hear(data.type, content);
    stayAtEnd();
    return;
  }
  if (content.shows || content.events_missed) return location.reload();
  if (data.type === "tool_call") live.doing(`Using ${content.name ?? content.call?.name ?? "a tool"}…`);
  if (data.type === "tool_output") live.doing("");
  if (data.scope === "agent") return listChanged();
  if (data.type === "turn_end") live.end(content.turn);
  if (["turn_queued", "turn_end", "waiting", "message"].includes(data.type)) listChanged();
  refresh();
}

function connect() {
  source?.close();
  source = new EventSource(`${updater.dataset.events}?last_event_id=${encodeURIComponent(cursor)}`);
  source.onopen = () => { connection(""); retryIn = 1000; };
  source.onerror = () => {
    connection(navigator.onLine ? "Reconnecting…" : "You are offline");
    if (source.readyState !== EventSource.CLOSED) return; // the browser connects again by itself
    refresh(); // says why, if the person is not signed in any more
    setTimeout(connect, retryIn);
    retryIn = Math.min(retryIn * 2, 15000);
  };
  for (const type of TYPES) source.addEventListener(type, hear);
}

function stayAtEnd() { if (atEnd) scroll.scrollTop = scroll.scrollHeight; }

let seen = "";
function markRead() {
  const place = document.getElementById("place").value;
  if (document.visibilityState !== "visible" || !place || place === seen) return;
  seen = place;
  const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
  fetch(updater.dataset.read, { method: "POST", headers: { "X-CSRFToken": token }, body: new URLSearchParams({ seq: place }) })
    .then(listChanged, () => { seen = ""; });
}

scroll.addEventListener("scroll", () => {
  atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
}, { passive: true });
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.elt !== updater) return;
  document.querySelector(".empty")?.remove();
  dropRepeated();
  live.show();
  addCodeButtons();
  stayAtEnd();
  markRead();
});
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target?.classList.contains("older")) keepPlace();
});
document.addEventListener("visibilitychange", markRead);
addEventListener("online", connect);
addEventListener("pageshow", (event) => { if (event.persisted) { connect(); refresh(); } });

// earlier messages come above: what is read stays where it is
function keepPlace() {
  const before = scroll.scrollHeight - scroll.scrollTop;
  requestAnimationFrame(() => { scroll.scrollTop = scroll.scrollHeight - before; addCodeButtons(); });
}

function dropRepeated() {
  const known = new Set();
  for (const each of document.querySelectorAll("#messages > [id]")) {
    if (known.has(each.id)) each.remove();
    known.add(each.id);
  }
}

function addCodeButtons() {
  for (const block of document.querySelectorAll(".text pre:not([data-copy])")) {
    block.dataset.copy = "";
    const button = Object.assign(document.createElement("button"), { type: "button", className: "code-copy", textContent: "Copy" });
    button.setAttribute("aria-label", "Copy the code");
    block.append(button);
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest(".copy, .code-copy");
  if (!button) return;
  const from = button.matches(".code-copy") ? button.parentElement.querySelector("code") : button.closest(".entry").querySelector(".text, .said");
  const text = from.cloneNode(true);
  for (const each of text.querySelectorAll(".code-copy")) each.remove();
  await navigator.clipboard.writeText(text.textContent.trim());
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), 1500);
});

// the place of a run: `?run=…` loads earlier messages until it is there
const MOST_PAGES = 20;
function showRun(run, pages = 0) {
  const entry = scroll.querySelector(`[data-run="${CSS.escape(run)}"]`);
  if (entry) {
    atEnd = false;
    entry.scrollIntoView({ block: "center" });
    entry.classList.add("shown");
    return;
  }
  const link = scroll.querySelector(".older a");
  if (!link || pages === MOST_PAGES) return;
  document.addEventListener("htmx:afterSettle", () => showRun(run, pages + 1), { once: true });
  link.click();
}

addCodeButtons();
scroll.scrollTop = scroll.scrollHeight;
const run = new URLSearchParams(location.search).get("run");
if (run) addEventListener("load", () => showRun(run));
connect();
markRead();
