// The list of appointments: arrow keys along a strip, and no reload under somebody's hands.

const marks = (strip) => [...strip.querySelectorAll("a, .to-come")];

function prepare(root) {
  for (const strip of root.querySelectorAll(".strip")) {
    const all = marks(strip);
    for (const each of all) each.tabIndex = -1;
    const last = all.findLast((each) => each.matches("a")) ?? all[0];
    if (last) last.tabIndex = 0;
  }
}

// at most once a second, and always after the last event
let due = 0;
document.body.addEventListener("refresh", () => {
  due ||= setTimeout(() => { due = 0; document.body.dispatchEvent(new Event("appointments-due")); }, 1000);
});

document.addEventListener("keydown", (event) => {
  const strip = event.target.closest?.(".strip");
  if (!strip) return;
  const all = marks(strip);
  const at = all.indexOf(event.target);
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const next = all[to];
  if (!next) return;
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});
const isInUse = (list) => list.querySelector(".appointments").contains(document.activeElement) || list.querySelector(".strip :hover");
document.addEventListener("htmx:beforeRequest", (event) => {
  const list = event.detail.elt;
  if (list.id === "appointments" && isInUse(list)) event.preventDefault();
});
document.addEventListener("htmx:beforeSwap", (event) => {
  const list = event.detail.requestConfig?.elt;
  if (list?.id !== "appointments") return;
  // meanwhile it was entered, or replaced by a form, which this late answer would replace in turn
  if (!list.isConnected || isInUse(list)) event.detail.shouldSwap = false;
});
document.addEventListener("htmx:afterSettle", (event) => {
  const target = event.detail.target;
  if (target?.id !== "panel-body") return;
  prepare(target);
  if (event.detail.requestConfig?.elt.id === "appointments") return; // it was loaded again by itself
  // after Skip next or Pause htmx has given the focus back to the button with the same id
  if (target.contains(document.activeElement) && document.activeElement.closest(".actions")) return;
  // htmx settles within the swap, and gives the focus to what had it after that
  setTimeout(() => (target.querySelector("[aria-invalid=true]") ?? target.querySelector("textarea") ?? target.querySelector("h2"))?.focus());
});
prepare(document);
