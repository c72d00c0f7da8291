// What the person has seen is marked as read. The list is asked for again then, because it shows the marks.

const KEY = "marking"; // of this window: the mark whose answer did not come yet

export function listChanged() { document.body.dispatchEvent(new Event("list-changed")); }

// `url` marks a conversation, `seq` is its last message seen. The promise fails if the server cannot be reached.
export async function markAsRead(url, seq) {
  const mark = JSON.stringify([url, seq]);
  sessionStorage.setItem(KEY, mark);
  const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
  // keepalive: the person may close the window before it is sent
  await fetch(url, { method: "POST", headers: { "X-CSRFToken": token }, body: new URLSearchParams({ seq }), keepalive: true });
  if (sessionStorage.getItem(KEY) === mark) sessionStorage.removeItem(KEY);
  listChanged();
}

// a person who leaves at once may be shown the next page before the mark is stored
const left = sessionStorage.getItem(KEY);
if (left) markAsRead(...JSON.parse(left)).catch(() => {}); // the next page tries again
