// What every page needs: local times, errors of requests, the panel, the list that follows the agents' events.

import "./press.js";
import "./reading.js";
import "./toast.js";

const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const FIELDS = { weekday: "short", year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "longOffset" };
const NEAR = new Map([[-1, "yesterday"], [0, "today"], [1, "tomorrow"]]);
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const formats = new Map();

function fieldsOf(at, zone) {
  if (!formats.has(zone)) formats.set(zone, new Intl.DateTimeFormat("en-US", { ...FIELDS, timeZone: zone }));
  const found = Object.fromEntries(formats.get(zone).formatToParts(at).map((each) => [each.type, each.value]));
  return { ...found, number: Date.UTC(found.year, MONTHS.indexOf(found.month), found.day) / 86400000 };
}

// as interfaces/web/formats.py: "today 14:05", "Thu 27 Nov 14:05", with the year if it is another
function inWords(then, now, exact) {
  const near = NEAR.get(then.number - now.number);
  const year = then.year === now.year ? "" : ` ${then.year}`;
  const seconds = exact && then.second !== "00" ? `:${then.second}` : "";
  return `${near ?? `${then.weekday} ${then.day} ${then.month}${year}`} ${then.hour}:${then.minute}${seconds}`;
}

function iso({ year, month, day, hour, minute, second, timeZoneName }) {
  const two = (number) => String(number).padStart(2, "0");
  return `${year}-${two(MONTHS.indexOf(month) + 1)}-${two(day)}T${hour}:${minute}:${second}${timeZoneName.slice(3) || "+00:00"}`;
}

// in the browser's zone; those of appointments in theirs, which is named if it is another
export function showTimes(root = document) {
  for (const each of root.querySelectorAll("time[datetime]:not([data-shown])")) {
    const zone = each.dataset.zone || HERE;
    const [then, now] = [fieldsOf(new Date(each.dateTime), zone), fieldsOf(new Date(), zone)];
    const name = each.querySelector(".zone");
    each.replaceChildren(inWords(then, now, "exact" in each.dataset));
    if (name && zone !== HERE) each.append(" ", name);
    each.title = `${iso(then)} ${zone}`;
    each.dataset.shown = "";
  }
}

// shown until something that the person does succeeds
export function alertPerson(text) {
  const place = document.getElementById("alert");
  place.textContent = text;
  place.hidden = !text;
}

const isByItself = (elt) => elt.getAttribute?.("hx-trigger")?.endsWith("again");
function sayAway({ detail: { elt } }, what) {
  const kept = elt.querySelector?.("textarea") ? " Your text is kept; try again." : " Try again.";
  if (!isByItself(elt)) alertPerson(`The server ${what}.${kept}`);
}

export function openPanel() {
  document.getElementById("panel").hidden = false;
  document.querySelector("[aria-controls=panel]")?.setAttribute("aria-expanded", "true");
}

export function closePanel() {
  const panel = document.getElementById("panel");
  if (!panel || panel.hidden) return;
  panel.hidden = true;
  const link = document.querySelector("[aria-controls=panel]");
  link?.setAttribute("aria-expanded", "false");
  link?.focus();
}

document.addEventListener("htmx:afterRequest", (event) => {
  const { elt, successful } = event.detail;
  if (successful && elt.matches?.("[aria-controls=panel], [data-opens-panel]")) openPanel();
  if (successful && !isByItself(elt)) alertPerson("");
});
document.addEventListener("htmx:beforeRequest", (event) => {
  const link = event.detail.elt;
  if (link?.matches?.("[aria-controls=panel]") && link.getAttribute("aria-expanded") === "true") {
    event.preventDefault();
    closePanel();
  }
});
// focus that a swap took from the keyboard goes to the place that is named around it: `data-then`, ids in order
let focused = null;
let places = [];
document.addEventListener("htmx:beforeSwap", () => {
  focused = document.activeElement?.matches(":focus-visible") ? document.activeElement : null;
  places = focused?.closest("[data-then]")?.dataset.then.split(" ") ?? [];
});
document.addEventListener("htmx:afterRequest", () => {
  if (focused?.isConnected || document.activeElement !== document.body) return;
  places.map((id) => document.getElementById(id)).find(Boolean)?.focus({ preventScroll: true });
  places = [];
});
document.addEventListener("htmx:afterSettle", (event) => showTimes(event.target)); // each new element, not the whole page
document.addEventListener("htmx:afterSettle", (event) => event.target.querySelector?.("[role=alert]")?.scrollIntoView({ block: "nearest" }));
document.addEventListener("htmx:oobAfterSwap", (event) => showTimes(event.detail.target ?? document));
document.addEventListener("htmx:responseError", (event) => {
  const { status, responseText } = event.detail.xhr;
  if (status === 401 || status === 403) return location.reload();
  const isText = event.detail.xhr.getResponseHeader("Content-Type")?.startsWith("text/plain");
  alertPerson(isText && responseText ? responseText.slice(0, 300) : `The server answered ${status}. Try again.`);
});
document.addEventListener("htmx:sendError", (event) => sayAway(event, "cannot be reached"));
document.addEventListener("htmx:timeout", (event) => sayAway(event, "does not answer"));
document.addEventListener("click", (event) => { if (event.target.closest("[data-close-panel]")) closePanel(); });
const hasFields = (form) => form?.querySelector("input:not([type=hidden]), select, textarea"); // what was typed is not thrown away
document.addEventListener("keydown", (event) => {
  const { target } = event;
  if (event.key === "Escape" && (target === document.body || target.closest("#panel")) && !hasFields(target.closest("form"))) closePanel();
});
document.querySelector(".search")?.addEventListener("submit", (event) => event.preventDefault()); // the list shows what is found

showTimes();
