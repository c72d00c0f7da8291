// What the person has seen is marked as read. The list is asked for again then, because it shows the marks.

const KEY = "marking"; // of this window: the marks whose answer did not come yet, seqs by address

// where storage is off, each mark is tried by its own page only
function kept() { try { return JSON.parse(sessionStorage.getItem(KEY)) ?? {}; } catch { return {}; } }
function keep(marks) { try { sessionStorage.setItem(KEY, JSON.stringify(marks)); } catch { /* as above */ } }

export function listChanged() { document.body.dispatchEvent(new Event("list-changed")); }

// no page hears of what happens in all conversations; the answer is empty while the list stays as it is
const AGAIN = 10_000; // milliseconds; browsers make them a minute in a window that nobody sees
setInterval(() => { if (navigator.onLine && !document.getElementById("search")?.value) listChanged(); }, AGAIN);

// `url` marks a conversation, `seq` is its last message seen. The promise fails if the server did not store it.
export async function markAsRead(url, seq) {
  keep({ ...kept(), [url]: seq });
  const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
  const body = new URLSearchParams({ seq });
  // keepalive: the person may close the window before it is sent
  const answer = await fetch(url, { method: "POST", headers: { "X-CSRFToken": token }, body, keepalive: true });
  const isDone = (answer.ok && !answer.redirected) || answer.status === 404; // a redirect leads to the sign-in page
  if (!isDone) throw new Error(`not marked as read: ${answer.status}`);
  const { [url]: last, ...others } = kept();
  if (last === seq) keep(others);
  listChanged();
}

// a person who leaves at once may be shown the next page before the mark is stored
for (const [url, seq] of Object.entries(kept())) markAsRead(url, seq).catch(() => {}); // the next page tries again

// the title and the icon count the conversations with something new or a question, the navigation those with a question
function showCounts() {
  const list = document.getElementById("conversations");
  if (!list || document.getElementById("search").value) return;
  const [asking, all] = [".ask", ":is(.ask, .new)"].map((each) => list.querySelectorAll(`.dot${each}`).length);
  const place = document.getElementById("asking");
  place.hidden = !asking;
  place.firstChild.textContent = asking;
  document.title = (all ? `(${all}) ` : "") + document.title.replace(/^\(\d+\) /, "");
  drawIcon(all);
}

const icon = document.querySelector("link[rel=icon]");
const plain = icon.href;
let drawn = null;
function drawIcon(all) {
  if (all === drawn) return;
  drawn = all;
  const number = all > 9 ? "9+" : all;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><g fill="none" stroke="#0f766e" stroke-width="2.2" stroke-linecap="round"><path d="M19.5 12a7.5 7.5 0 1 1-3-6"/></g><circle cx="15.5" cy="15.5" r="8.5" fill="#b91c1c"/><text x="15.5" y="20" text-anchor="middle" font-family="sans-serif" font-weight="700" font-size="${all > 9 ? 10 : 13}" fill="#fff">${number}</text></svg>`;
  icon.href = all ? `data:image/svg+xml,${encodeURIComponent(svg)}` : plain;
  navigator.setAppBadge?.(all).catch(() => {}); // 0 removes it; there is none where the page is not installed
}
document.addEventListener("htmx:afterSettle", (event) => { if (event.target.closest("#conversations")) showCounts(); });
showCounts();
