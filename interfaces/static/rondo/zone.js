// The browser's time zone: it is sent with the sign-in, once to an account that has none, and offered if another is kept.

const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const first = document.getElementById("first-zone");
const other = document.getElementById("other-zone");

// as this browser calls it, such as Asia/Calcutta for Asia/Kolkata; none for one that it does not know
function ownName(timeZone) {
  try { return Intl.DateTimeFormat("en", { timeZone }).resolvedOptions().timeZone; } catch { return ""; }
}

for (const field of document.querySelectorAll("[data-here]")) field.value = HERE;
// the next page tries again
if (first) fetch(first.action, { method: "POST", body: new URLSearchParams(new FormData(first)) }).catch(() => {});
if (other) {
  other.querySelector("span span").textContent = HERE;
  other.hidden = ownName(other.dataset.kept) === HERE;
}
