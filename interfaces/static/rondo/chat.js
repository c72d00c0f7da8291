// The page of a conversation: it follows the session's events, and asks the server for the parts that changed.

import { LiveAnswer } from "./live.js";
import { listChanged, markAsRead } from "./reading.js";
import "./composer.js";

const updater = document.getElementById("updater");
const scroll = document.getElementById("scroll");
const live = new LiveAnswer(updater.dataset.rendered, () => stayAtEnd());
const TEXT = new Set(["delta", "snapshot"]);
const TYPES = ["turn_queued", "turn_start", "tool_call", "tool_output", "planning", "plan", "replan", "step_start",
  "step_complete", "waiting", "done", "message", "delivery", "turn_end", "delta", "snapshot", "status"];

const OFFLINE = "You are offline";
const DOING = JSON.parse(updater.dataset.doing);
const newest = document.getElementById("newest");

let cursor = updater.dataset.cursor;
let source = null;
let retryIn = 1000;
let isGone = false; // the conversation was deleted
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

function hear(event) {
  const data = JSON.parse(event.data);
  if (event.lastEventId) cursor = event.lastEventId;
  const { content } = data;
  if (TEXT.has(data.type) || content.status === "retrying") {
    live.hear(data.type, content);
    stayAtEnd();
    return;
  }
  if (content.shows || content.events_missed || content.status === "unarchived") return location.reload();
  if (data.type === "delivery") deliveries.set(content.delivery, content);
  if (data.type === "tool_call") live.doing(doing(content.call ?? content));
  if (data.type === "tool_output") live.doing("");
  if (content.has_unread_background_updates) refresh();
  if (data.scope === "agent") return listChanged();
  if (data.type === "turn_end") live.end(content.turn);
  if (["turn_queued", "turn_end", "waiting", "message"].includes(data.type) || ["archived", "question_closed"].includes(content.status)) listChanged();
  refresh();
}

function doing({ name = "a tool", arguments: given }) {
  const words = DOING[`${name} ${given?.action}`] ?? DOING[name] ?? `using ${name}`;
  return `${words[0].toUpperCase()}${words.slice(1)}…`;
}

// the state of a delivery changes after its message was shown; the message may come after the event
const deliveries = new Map();
function showDeliveries() {
  for (const [id, { channel, state, error }] of deliveries) {
    const chip = document.getElementById(`delivery-${id}`);
    if (!chip) continue;
    deliveries.delete(id);
    chip.textContent = `${channel}: ${state}`;
    chip.className = `chip delivery ${state}`;
    chip.title = error ?? "";
  }
}

function leave() {
  isGone = true;
  source.close();
  connection("");
  const said = Object.assign(document.createElement("p"), { className: "closed note", textContent: "This conversation was deleted." });
  document.getElementById("writing").replaceChildren(said);
  for (const id of ["now", "more"]) document.getElementById(id).replaceChildren();
  listChanged();
}

function connect() {
  if (isGone) return;
  source?.close();
  source = new EventSource(`${updater.dataset.events}?last_event_id=${encodeURIComponent(cursor)}`);
  source.onopen = () => { live.begin(); connection(navigator.onLine ? "" : OFFLINE); retryIn = 1000; };
  source.onerror = () => {
    connection(navigator.onLine ? "Reconnecting…" : OFFLINE);
    if (source.readyState !== EventSource.CLOSED) return; // the browser connects again by itself
    if (isGone) return;
    refresh(); // says why, if the person is not signed in any more
    setTimeout(connect, retryIn);
    retryIn = Math.min(retryIn * 2, 15000);
  };
  for (const type of TYPES) source.addEventListener(type, hear);
}

let lastTop = 0;
const isNear = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;

// who has just scrolled up is not taken back, though the event of that is still to come
function stayAtEnd() {
  if (!atEnd || (scroll.scrollTop < lastTop && !isNear())) return;
  scroll.scrollTop = scroll.scrollHeight;
  lastTop = scroll.scrollTop;
}

new ResizeObserver(stayAtEnd).observe(document.getElementById("messages"));

function showNewest() {
  newest.hidden = atEnd;
  if (atEnd) newest.classList.remove("primary");
}
newest.addEventListener("click", () => {
  scroll.scrollTop = scroll.scrollHeight;
  (document.getElementById("box") ?? scroll).focus({ preventScroll: true });
});

let last = document.getElementById("place").value;
let seen = "";
function markRead() {
  const place = document.getElementById("place").value;
  if (document.visibilityState !== "visible" || !place || place === seen) return;
  seen = place;
  markAsRead(updater.dataset.read, place).catch(() => { seen = ""; });
}

scroll.addEventListener("scroll", () => {
  if (isNear() || scroll.scrollTop < lastTop) atEnd = isNear(); // what grows below the end is followed
  lastTop = scroll.scrollTop;
  showNewest();
}, { passive: true });
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.elt !== updater) return;
  if (document.querySelector(".entry")) document.querySelector(".empty")?.remove();
  dropRepeated();
  const place = document.getElementById("place").value;
  if (place !== last) newest.classList.toggle("primary", !atEnd);
  last = place;
  showDeliveries();
  live.show();
  addCodeButtons();
  stayAtEnd();
  markRead();
});
document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.elt === updater && event.detail.xhr.status === 404 && !isGone) leave();
});
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target?.classList.contains("older")) keepPlace();
});
// the cards of appointments show what the panel, their own buttons or another window changed
function showMade() { for (const each of document.querySelectorAll(".made")) htmx.trigger(each, "again"); }
document.addEventListener("htmx:afterSwap", ({ detail }) => { if (detail.requestConfig.elt.id === "appointments") showMade(); });
document.addEventListener("htmx:afterRequest", ({ detail }) => {
  if (!detail.successful || detail.requestConfig.verb !== "post" || !detail.target.closest("#panel, .made")) return;
  showMade();
  if (detail.target.closest(".made")) refresh();
});
document.addEventListener("visibilitychange", () => { markRead(); if (!document.hidden) showMade(); });
addEventListener("online", connect);
addEventListener("offline", () => connection(OFFLINE));
addEventListener("pageshow", (event) => { if (event.persisted) { connect(); refresh(); } });

// earlier messages come above: what is read stays where it is
function keepPlace() {
  const before = scroll.scrollHeight - scroll.scrollTop;
  requestAnimationFrame(() => { scroll.scrollTop = scroll.scrollHeight - before; });
}

function dropRepeated() {
  const known = new Set();
  for (const each of document.querySelectorAll("#messages .entry")) {
    if (known.has(each.id)) each.remove();
    known.add(each.id);
  }
}

function addCodeButtons(root = document) {
  for (const block of root.querySelectorAll(".entry:not(.live) .text pre:not([data-copy])")) {
    block.dataset.copy = "";
    const button = Object.assign(document.createElement("button"), { type: "button", className: "code-copy", textContent: "Copy" });
    button.setAttribute("aria-label", "Copy the code");
    block.append(button);
  }
}

async function copyText(text, button) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // browsers have no such object on pages that came by plain HTTP from another machine
  const area = Object.assign(document.createElement("textarea"), { value: text, className: "hidden" });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  button.focus();
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest(".copy, .code-copy");
  if (!button) return;
  const from = button.matches(".code-copy") ? button.parentElement.querySelector("code") : button.closest(".entry").querySelector(".text, .said");
  const text = from.cloneNode(true);
  for (const each of text.querySelectorAll(".code-copy")) each.remove();
  await copyText(text.textContent.trim(), button);
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), 1500);
});

// the place of a run: `?run=…` loads earlier messages until it is there
const MOST_PAGES = 20;
function showRun(run, pages = 0) {
  const entry = scroll.querySelector(`[data-run="${CSS.escape(run)}"]`);
  if (entry) {
    atEnd = false;
    for (const other of scroll.querySelectorAll(".entry.shown")) other.classList.remove("shown");
    entry.scrollIntoView({ block: "center" });
    entry.classList.add("shown");
    return;
  }
  const link = scroll.querySelector(".older a");
  if (!link || pages === MOST_PAGES) return;
  document.addEventListener("htmx:afterSettle", () => showRun(run, pages + 1), { once: true });
  link.click();
}

document.addEventListener("htmx:afterSettle", ({ target }) => { if (target.matches(".page")) addCodeButtons(target); });
// a slot that is opened in the panel is shown in the conversation, too
document.addEventListener("htmx:afterSettle", (event) => {
  const { target } = event.detail;
  const run = target.id === "panel-body" && target.querySelector("[data-run-here]")?.dataset.runHere;
  if (run) showRun(run);
});

addCodeButtons();
scroll.scrollTop = scroll.scrollHeight;
const run = new URLSearchParams(location.search).get("run");
if (run) addEventListener("load", () => showRun(run));
connect();
markRead();
