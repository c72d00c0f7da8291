// What every page needs: local times, errors of requests, the panel, the list that follows the agents' events.

const near = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const far = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

export function showTimes(root = document) {
  for (const each of root.querySelectorAll("time[datetime]:not([data-zone], [data-shown])")) {
    const at = new Date(each.dateTime);
    const isToday = at.toDateString() === new Date().toDateString();
    each.textContent = (isToday ? near : far).format(at);
    each.title = whole.format(at);
    each.dataset.shown = "";
  }
}

let hiding;
export function alertPerson(text) {
  const place = document.getElementById("alert");
  place.textContent = text;
  place.hidden = !text;
  clearTimeout(hiding);
  hiding = setTimeout(() => { place.hidden = true; }, 8000);
}

export function openPanel(link) {
  const panel = document.getElementById("panel");
  panel.hidden = false;
  link?.setAttribute("aria-expanded", "true");
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
  const link = event.detail.elt;
  if (event.detail.successful && link?.matches?.("[aria-controls=panel]")) openPanel(link);
});
document.addEventListener("htmx:beforeRequest", (event) => {
  const link = event.detail.elt;
  if (link?.matches?.("[aria-controls=panel]") && link.getAttribute("aria-expanded") === "true") {
    event.preventDefault();
    closePanel();
  }
});
document.addEventListener("htmx:afterSettle", () => showTimes()); // the target may have been replaced as a whole
document.addEventListener("htmx:oobAfterSwap", (event) => showTimes(event.detail.target ?? document));
document.addEventListener("htmx:responseError", (event) => {
  const { status, responseText } = event.detail.xhr;
  if (status === 401 || status === 403) return location.reload();
  const isText = event.detail.xhr.getResponseHeader("Content-Type")?.startsWith("text/plain");
  alertPerson(isText && responseText ? responseText.slice(0, 300) : `The server answered ${status}. Try again.`);
});
document.addEventListener("htmx:sendError", () => alertPerson("The server cannot be reached. Your text is kept; try again."));
document.addEventListener("click", (event) => { if (event.target.closest("[data-close-panel]")) closePanel(); });
document.addEventListener("keydown", (event) => {
  const { target } = event;
  if (event.key === "Escape" && (target === document.body || target.closest("#panel")) && !target.closest("form")) closePanel();
});
document.querySelector(".search")?.addEventListener("submit", (event) => event.preventDefault()); // the list shows what is found

showTimes();
