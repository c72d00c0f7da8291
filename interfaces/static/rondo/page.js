// What every page needs: errors of requests, the panel, the list that follows the agents' events.

import "./jump.js";
import "./notify.js";
import "./press.js";
import "./reading.js";
import "./toast.js";
import "./zone.js";

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
document.addEventListener("htmx:afterSettle", (event) => event.target.querySelector?.("[role=alert]")?.scrollIntoView({ block: "nearest" }));
document.addEventListener("htmx:responseError", (event) => {
  const { status, responseText } = event.detail.xhr;
  if (event.detail.elt.id === "conversations") return; // it is asked for again, and what is typed on the page stays
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
