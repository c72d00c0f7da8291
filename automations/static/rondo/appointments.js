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
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!strip || !step) return;
  event.preventDefault();
  const all = marks(strip);
  const next = all[all.indexOf(event.target) + step];
  if (!next) return;
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});
document.addEventListener("htmx:beforeRequest", (event) => {
  const list = event.detail.elt;
  if (list.id !== "appointments") return;
  if (list.querySelector(".appointments").contains(document.activeElement) || list.querySelector(".strip :hover")) event.preventDefault();
});
document.addEventListener("htmx:afterSettle", (event) => {
  const target = event.detail.target;
  if (target?.id !== "panel-body") return;
  prepare(target);
  if (event.detail.requestConfig?.elt.id === "appointments") return; // it was loaded again by itself
  (target.querySelector("[aria-invalid=true]") ?? target.querySelector("textarea") ?? target.querySelector("h2"))?.focus();
});
prepare(document);
