// Ctrl-K or ⌘K: jump to a conversation, a page, an agent or an action by typing some of its name.

const MOST = 12; // lines
const PAUSE = 200; // milliseconds after a key before the server is asked
const dialog = document.getElementById("jump");
const word = document.getElementById("jump-word");
const list = document.getElementById("jump-list");
const isMac = /^(Mac|iP)/.test(navigator.platform);
let lines = [];
let chosen = 0;
let timer = 0;
let asked = null;

const open = (link) => () => { location.href = link.href; };
const textOf = (root, selector) => root.querySelector(selector)?.textContent.trim() ?? "";

function places() {
  const links = [...document.querySelectorAll(".places a, .sidebar-end a")];
  return links.map((link) => ({ name: link.ariaLabel ?? link.firstElementChild.nextSibling.textContent.trim(), kind: "Page", go: open(link) }));
}

function agents() {
  const base = document.querySelector(".places a[href$='/agents/']")?.href;
  const field = document.querySelector(".begin [name=agent]");
  const names = field?.options ? [...field.options].map((each) => each.value) : [field?.value].filter(Boolean);
  const begin = (name) => () => { field.value = name; field.form.requestSubmit(); };
  return names.flatMap((name) => [
    { name: names.length > 1 ? `New conversation with ${name}` : "New conversation", kind: "Action", go: begin(name) },
    { name, kind: "Agent", go: () => { location.href = `${base}${encodeURIComponent(name)}/`; } },
  ]);
}

function actions() {
  const link = document.querySelector("a.part");
  return link ? [{ name: "Appointments of this conversation", kind: "Action", go: () => link.click() }] : [];
}

function conversations(root) {
  return [...root.querySelectorAll("a.conversation")].map((link) => ({ name: textOf(link, ".name"), about: textOf(link, ".preview"), kind: "Conversation", go: open(link) }));
}

function fixed(query) {
  const wanted = query.toLowerCase().split(/\s+/);
  return [...actions(), ...agents(), ...places()].filter(({ name }) => wanted.every((each) => name.toLowerCase().includes(each)));
}

function show(found) {
  lines = found.slice(0, MOST);
  chosen = Math.min(chosen, Math.max(lines.length - 1, 0));
  list.replaceChildren(...lines.map((each, number) => {
    const item = document.createElement("li");
    item.role = "option";
    item.id = `jump-${number}`;
    for (const [kind, text] of [["bdi", each.name], ["span", each.about ?? ""], ["small", each.kind]]) item.append(Object.assign(document.createElement(kind), { textContent: text }));
    item.addEventListener("click", () => go(number));
    item.addEventListener("pointermove", () => mark(number));
    return item;
  }));
  document.getElementById("jump-found").textContent = lines.length ? "" : "Nothing found";
  mark(chosen);
}

function mark(number) {
  chosen = number;
  [...list.children].forEach((each, place) => { each.ariaSelected = String(place === chosen); });
  lines.length ? word.setAttribute("aria-activedescendant", `jump-${chosen}`) : word.removeAttribute("aria-activedescendant");
  list.children[chosen]?.scrollIntoView({ block: "nearest" });
}

function go(number) {
  if (!lines[number]) return;
  dialog.close();
  lines[number].go();
}

function find() {
  clearTimeout(timer);
  asked?.abort();
  const query = word.value.trim();
  if (!query) return show([...conversations(document).slice(0, 5), ...fixed("")]);
  show(fixed(query));
  timer = setTimeout(() => search(query), PAUSE);
}

async function search(query) {
  asked = new AbortController();
  try {
    const answer = await fetch(`${list.dataset.search}?q=${encodeURIComponent(query)}`, { headers: { "HX-Request": "true" }, signal: AbortSignal.any([asked.signal, AbortSignal.timeout(10000)]) });
    if (answer.status === 401) return location.reload();
    if (!answer.ok) return;
    const found = new DOMParser().parseFromString(await answer.text(), "text/html");
    show([...fixed(query), ...conversations(found)]);
  } catch { /* the next key asks again */ }
}

function openDialog() {
  if (dialog.open) return dialog.close();
  word.value = "";
  chosen = 0;
  dialog.showModal();
  find();
}

if (dialog) {
  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(isMac ? event.metaKey : event.ctrlKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    openDialog();
  });
  word.addEventListener("input", () => { chosen = 0; find(); });
  word.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && lines.length) {
      event.preventDefault();
      mark((chosen + step + lines.length) % lines.length);
    } else if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      go(chosen);
    }
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); }); // beside it
  const button = document.getElementById("jump-open");
  button.hidden = false;
  button.textContent = isMac ? "⌘K" : "Ctrl K";
  button.addEventListener("click", openDialog);
}
