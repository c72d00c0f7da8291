// What the person has seen is marked as read. The list is asked for again then, because it shows the marks.

const KEY = "marking"; // of this window: the marks whose answer did not come yet, seqs by address

// where storage is off, each mark is tried by its own page only
function kept() { try { return JSON.parse(sessionStorage.getItem(KEY)) ?? {}; } catch { return {}; } }
function keep(marks) { try { sessionStorage.setItem(KEY, JSON.stringify(marks)); } catch { /* as above */ } }

export function listChanged() { document.body.dispatchEvent(new Event("list-changed")); }

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

// the title counts the conversations with something new or a question, the navigation those with a question
function showCounts() {
  const list = document.getElementById("conversations");
  if (!list || document.getElementById("search").value) return;
  const [asking, all] = [".ask", ":is(.ask, .new)"].map((each) => list.querySelectorAll(`.dot${each}`).length);
  const place = document.getElementById("asking");
  place.hidden = !asking;
  place.firstChild.textContent = asking;
  document.title = (all ? `(${all}) ` : "") + document.title.replace(/^\(\d+\) /, "");
}
document.addEventListener("htmx:afterSettle", (event) => { if (event.target.closest("#conversations")) showCounts(); });
showCounts();
