// The list of appointments: arrow keys along a strip, cards that keep their places, no reload under somebody's hands.

const marks = (strip) => [...strip.querySelectorAll("a, .to-come")];

function prepare(root) {
  for (const strip of root.querySelectorAll("ol.strip")) {
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
const isInUse = (list) => list.querySelector(".strip :is(:hover, :focus)"); // its tip is read
document.addEventListener("htmx:beforeRequest", (event) => {
  const list = event.detail.elt;
  if (list.id === "appointments" && (document.hidden || !list.checkVisibility() || isInUse(list))) event.preventDefault();
});
document.addEventListener("visibilitychange", () => document.body.dispatchEvent(new Event("appointments-due")));

let shown = ""; // the last answer in the panel
let order = []; // of the cards, as long as the panel is open; new ones stand last
let held = null; // a card, and where its buttons stand
const buttons = (card) => card.querySelector(".actions").getBoundingClientRect();

document.addEventListener("htmx:beforeSwap", (event) => {
  const { target, requestConfig, xhr } = event.detail;
  if (target.id !== "panel-body") return;
  const list = requestConfig.elt;
  const text = xhr.responseText.replace(/name="csrfmiddlewaretoken" value="\w+"/g, "");
  // meanwhile it was entered, or replaced by a form, which this late answer would replace in turn; or nothing has changed
  if (list.id === "appointments" && (!list.isConnected || isInUse(list) || text === shown)) event.detail.shouldSwap = false;
  if (!event.detail.shouldSwap) return;
  shown = text;
  if (list.matches("[aria-controls=panel]")) order = [];
  const card = target.querySelector(".appointment:is(:hover, :focus-within)") ?? [...target.querySelectorAll(".appointment")].find((each) => buttons(each).top > 0);
  held = card && text.includes('id="appointments"') ? { id: card.id, top: buttons(card).top } : null;
});
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target?.id !== "panel-body") return;
  const list = document.querySelector("#panel-body .appointments");
  if (!list) return;
  const cards = [...list.children];
  order.push(...cards.map(({ id }) => id).filter((id) => !order.includes(id)));
  const sorted = cards.toSorted((a, b) => order.indexOf(a.id) - order.indexOf(b.id));
  if (sorted.some((card, at) => card !== cards[at])) {
    const focused = document.activeElement;
    list.append(...sorted);
    focused.focus({ preventScroll: true });
  }
  const card = held && document.getElementById(held.id);
  if (card) list.closest(".panel, .scroll").scrollTop += buttons(card).top - held.top;
});
document.addEventListener("htmx:afterSettle", (event) => {
  const target = event.detail.target;
  if (target?.id !== "panel-body") return;
  prepare(target);
  if (event.detail.requestConfig?.elt.id === "appointments") return; // it was loaded again by itself
  // after Skip next or Pause htmx has given the focus back to the button with the same id
  if (target.contains(document.activeElement) && document.activeElement.closest(".actions")) return;
  const preventScroll = Boolean(held); // the cards stay where they are
  // htmx settles within the swap, and gives the focus to what had it after that
  setTimeout(() => (target.querySelector("[aria-invalid=true]") ?? target.querySelector("textarea") ?? target.querySelector("h2"))?.focus({ preventScroll }));
});
prepare(document);
order = [...document.querySelectorAll("#panel-body .appointment")].map(({ id }) => id);
