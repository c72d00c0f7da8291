// What was done, with Undo: a toast stays for 8 s, and as long as it is pointed at or the keyboard is in use.

const LASTS = 8000; // milliseconds
const toast = document.getElementById("toast");
let timer = 0;

function wait() {
  clearTimeout(timer);
  const isInUse = () => toast.matches(":hover, :focus-within") || document.activeElement?.matches(":is(a, button):focus-visible");
  if (toast.children.length) timer = setTimeout(() => (isInUse() ? wait() : toast.replaceChildren()), LASTS);
}

new MutationObserver(wait).observe(toast, { childList: true });
wait();
toast.addEventListener("click", (event) => {
  if (!event.target.closest("[data-dismiss]")) return;
  toast.replaceChildren();
  toast.dataset.then.split(" ").map((id) => document.getElementById(id)).find(Boolean)?.focus({ preventScroll: true });
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "z" || !(event.ctrlKey || event.metaKey) || event.target.closest("input, select, textarea")) return;
  toast.querySelector("form button")?.click();
});
