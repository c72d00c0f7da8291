// The box to write in: Enter sends, drafts survive a reload, / shows commands.

import { addFiles, hasFiles } from "./attach.js";
import { alertPerson, openPanel } from "./page.js";

const form = document.getElementById("composer");
const box = form?.querySelector("textarea");
const list = document.getElementById("commands");
const draft = `draft:${location.pathname}`;
const COMMANDS = [
  { name: "/clear", text: "Forget the conversation so far; messages stay readable", run: () => { box.value = "/clear"; send(); } },
  { name: "/schedule", text: "Make an automation in this conversation", run: () => openForm("automation") },
  { name: "/later", text: "Send a fixed text at a set time", run: () => openForm("message") },
];
let chosen = 0;

function openForm(kind) {
  box.value = "";
  keepDraft();
  closeCommands();
  const part = document.querySelector(".part");
  if (!part) return;
  htmx.ajax("GET", part.href, "#panel-body").then(() => {
    openPanel();
    const link = document.querySelector(`#panel-body [data-new=${kind}]`);
    if (link) htmx.ajax("GET", link.href, "#panel-body"); // a click would come before htmx knows the link
  });
}

function send() {
  if (!box.value.trim() && !hasFiles()) return;
  form.querySelector("[name=key]").value ||= crypto.randomUUID?.() ?? String(Math.random()).slice(2);
  form.requestSubmit();
}

// the journal keeps what was said: an edited message is another one
async function writeAgain(entry) {
  const said = entry.querySelector(".said")?.textContent ?? "";
  box.value = [said, box.value].filter((each) => each.trim()).join("\n\n");
  box.dispatchEvent(new Event("input"));
  document.getElementById("rewriting").textContent = "Sent as a new message: the earlier one and its answer stay.";
  box.focus();
  const links = [...entry.querySelectorAll(".files a")];
  const files = await Promise.all(links.map(async (link) => {
    const content = await (await fetch(link.href)).blob();
    return new File([content], link.querySelector("bdi")?.textContent ?? link.querySelector("img").alt, { type: content.type });
  }));
  if (files.length) addFiles(files);
}

function keepDraft() {
  try { box.value ? localStorage.setItem(draft, box.value) : localStorage.removeItem(draft); } catch { /* storage is off */ }
}

function matching() {
  const word = box.value;
  return /^\/\w*$/.test(word) ? COMMANDS.filter((each) => each.name.startsWith(word)) : [];
}

function showCommands() {
  const found = matching();
  chosen = Math.min(chosen, Math.max(found.length - 1, 0));
  list.hidden = !found.length;
  list.replaceChildren(...found.map((each, number) => {
    const line = document.createElement("li");
    line.role = "option";
    line.id = `command-${number}`;
    line.ariaSelected = String(number === chosen);
    const name = document.createElement("b");
    name.textContent = each.name;
    line.append(name, each.text);
    line.addEventListener("mousedown", (event) => { event.preventDefault(); each.run(); });
    return line;
  }));
  list.hidden ? box.removeAttribute("aria-activedescendant") : box.setAttribute("aria-activedescendant", `command-${chosen}`);
}

function closeCommands() {
  list.hidden = true;
  box.removeAttribute("aria-activedescendant");
}

function onKey(event) {
  const found = list.hidden ? [] : matching();
  if (found.length && ["ArrowDown", "ArrowUp"].includes(event.key)) {
    event.preventDefault();
    chosen = (chosen + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length;
    showCommands();
  } else if (event.key === "Escape") {
    closeCommands();
  } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    found.length ? found[chosen].run() : send();
  }
}

if (form) {
  try { box.value ||= localStorage.getItem(draft) ?? ""; } catch { /* storage is off */ }
  box.setAttribute("aria-controls", "commands");
  // another text is another message; the same one sent again, after its answer was lost, is not
  box.addEventListener("input", () => { form.querySelector("[name=key]").value = ""; keepDraft(); showCommands(); });
  box.addEventListener("keydown", onKey);
  box.addEventListener("blur", closeCommands);
  let sent = "";
  form.addEventListener("htmx:beforeRequest", () => { sent = box.value; });
  form.addEventListener("htmx:afterRequest", (event) => {
    const { xhr, successful } = event.detail;
    if (!successful || xhr.status >= 400) return;
    // what was typed meanwhile stays
    if (box.value === sent) box.value = "";
    else if (box.value.startsWith(sent)) box.value = box.value.slice(sent.length).trimStart();
    form.querySelector("[name=key]").value = "";
    document.getElementById("rewriting").textContent = "";
    keepDraft();
    closeCommands();
    box.focus();
    const place = document.getElementById("scroll");
    place.scrollTop = place.scrollHeight;
  });
  form.addEventListener("submit", () => { form.querySelector("[name=key]").value ||= crypto.randomUUID?.() ?? String(Math.random()).slice(2); });
  document.addEventListener("click", (event) => {
    const entry = event.target.closest(".edit")?.closest(".entry");
    if (entry) return writeAgain(entry);
    const example = event.target.closest("[data-example]");
    if (!example) return;
    box.value = example.textContent;
    box.focus();
    keepDraft();
    alertPerson("");
  });
}
