// A swap in the middle of a press would take the click from its button: what comes by itself is asked for again when the
// press ends. Such elements have `again` as their last trigger.

const LONGEST_PRESS = 2000; // milliseconds; nothing waits longer
const late = new Set();
let pressEnds = 0;
let timer = 0;

function press({ target }) {
  if (target.closest?.("a, button, summary")) pressEnds = Date.now() + LONGEST_PRESS;
}

function endPress() {
  pressEnds = 0;
  clearTimeout(timer);
  for (const each of late) htmx.trigger(each, "again");
  late.clear();
}

for (const name of ["pointerdown", "keydown"]) addEventListener(name, press, true);
for (const name of ["pointerup", "pointercancel", "dragend", "keyup"]) addEventListener(name, endPress, true);
addEventListener("blur", endPress); // of the window
document.addEventListener("htmx:beforeSwap", (event) => {
  const { elt } = event.detail.requestConfig;
  if (Date.now() > pressEnds || !elt.getAttribute("hx-trigger")?.endsWith("again")) return;
  event.detail.shouldSwap = false;
  if (!late.size) timer = setTimeout(endPress, LONGEST_PRESS);
  late.add(elt);
});
