{% load static %}// The service worker: it shows pushes and opens their conversations. It keeps no page and no answer.

const ICON = "{% static 'rondo/app-192.png' %}";
const pathOf = ({ session }) => `/sessions/${encodeURIComponent(session)}/`;

// a browser that is quiet about a push takes the right to push away: only a window in sight may stand for it
async function show(told) {
  const windows = await clients.matchAll({ type: "window", includeUncontrolled: true });
  if (windows.some((each) => each.focused && new URL(each.url).pathname === pathOf(told))) return;
  await registration.showNotification(told.title, { body: told.body, tag: told.session, renotify: true, icon: ICON, data: told });
}

async function open(told) {
  const windows = await clients.matchAll({ type: "window", includeUncontrolled: true });
  const there = windows.find((each) => new URL(each.url).pathname === pathOf(told));
  await (there ? there.focus() : clients.openWindow(pathOf(told)));
}

self.addEventListener("push", (event) => event.waitUntil(show(event.data.json())));
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data));
});
