// Notifications of this browser: what an open page shows, and on the account page the switch for pushes.

const KEY = "told"; // the number of the last notice that a page of this browser has shown

const subscription = async () => (await navigator.serviceWorker?.getRegistration("/"))?.pushManager.getSubscription();

// `data-told` stands for a few minutes; of several pages the first one shows it, and none where pushes do
async function showTold() {
  if (window.Notification?.permission !== "granted" || (await subscription())) return;
  const last = Number(localStorage.getItem(KEY));
  const news = [...document.querySelectorAll("#conversations [data-told]")].filter(({ dataset }) => Number(dataset.told) > last);
  if (!news.length) return;
  localStorage.setItem(KEY, Math.max(...news.map(({ dataset }) => Number(dataset.told))));
  for (const each of news) {
    const shown = new Notification(each.querySelector(".name").textContent, { body: each.dataset.words, tag: each.id.replace("to-", "") });
    shown.onclick = () => { window.focus(); location.href = each.href; };
  }
}
const tryToShow = () => showTold().catch(() => {}); // storage is off, or a phone: there only pushes tell it
document.addEventListener("htmx:afterSettle", ({ target }) => { if (target.closest("#conversations")) tryToShow(); });
tryToShow();

// the browser asks for its permission only after a click
const pages = document.querySelector("[name=notify_pages]");
pages?.addEventListener("change", () => { if (pages.checked) window.Notification?.requestPermission(); });

const place = document.getElementById("browser");
async function markThisOne() {
  const own = await subscription();
  const row = [...document.querySelectorAll("[data-endpoint]")].find(({ dataset }) => dataset.endpoint === own?.endpoint);
  if (row) row.querySelector(".chip").hidden = false;
  place.hidden = Boolean(row);
}

async function subscribe() {
  if ((await Notification.requestPermission()) !== "granted") throw new Error("This browser does not allow notifications of this site.");
  await navigator.serviceWorker.register(place.dataset.worker);
  const { pushManager } = await navigator.serviceWorker.ready;
  await (await pushManager.getSubscription())?.unsubscribe(); // it may be of another person, or of a former key
  const made = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: place.dataset.key });
  const { endpoint, keys } = made.toJSON();
  const headers = { "X-CSRFToken": document.querySelector("[name=csrfmiddlewaretoken]").value };
  const answer = await fetch(place.dataset.add, { method: "POST", headers, body: new URLSearchParams({ endpoint, key: keys.p256dh, secret: keys.auth }) });
  if (!answer.ok) throw new Error(await answer.text());
  location.reload();
}

if (place && "PushManager" in window) {
  const [button, status] = place.children;
  markThisOne();
  button.addEventListener("click", () => {
    button.disabled = true;
    subscribe().catch((error) => { status.textContent = error.message; }).finally(() => { button.disabled = false; });
  });
}

// who signs out of this browser, or removes it, is not told here any more
document.addEventListener("submit", async (event) => {
  const row = event.target.closest("[data-endpoint]:has(.chip:not([hidden]))");
  if (!row && !event.target.matches("[action='/sign-out/']")) return;
  event.preventDefault();
  try { await (await subscription())?.unsubscribe(); } finally { event.target.submit(); }
});
