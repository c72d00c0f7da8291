// The files of a message: chosen, pasted or dropped. They are shown before they are sent, with a bar while they are.

import { alertPerson } from "./page.js";

const LONGEST_UPLOAD = 150000; // milliseconds; the server waits as long for a message with files
const form = document.getElementById("composer");
const input = document.getElementById("files");
const list = document.getElementById("attached");
const about = document.getElementById("about-files");
const bar = document.getElementById("sending");
const box = document.getElementById("box");
let sent = [];

export const hasFiles = () => Boolean(input?.files.length);
const megabytes = (bytes) => `${bytes / 1024 / 1024} MB`;
const nameOf = (file) => `${file.name} ${file.size} ${file.lastModified}`;

// what the server would refuse after the upload is refused before it
function problem(files) {
  const { most, largest, largestImage, blind } = input.dataset;
  const images = files.filter((each) => each.type.startsWith("image/"));
  if (files.length > most) return `A message may have at most ${most} files.`;
  if (blind && images.length) return `No pictures: ${blind}.`;
  const large = images.find((each) => each.size > largestImage);
  if (large) return `“${large.name}” is too large: a picture may have at most ${megabytes(largestImage)}.`;
  if (files.reduce((sum, each) => sum + each.size, 0) > largest) return `The files of a message may have at most ${megabytes(largest)} together.`;
  return "";
}

function attach(files) {
  const all = new DataTransfer();
  for (const each of files) all.items.add(each);
  input.files = all.files;
  form.querySelector("[name=key]").value = ""; // other files are another message
  show();
}

export function addFiles(more) {
  const files = [...kept, ...more];
  const text = problem(files);
  alertPerson(text);
  attach(text ? kept : files);
  box.focus();
}

let kept = [];
function show() {
  kept = [...input.files];
  box.required = !kept.length;
  list.hidden = about.hidden = !kept.length;
  list.replaceChildren(...kept.map(line));
}

function line(file) {
  const item = document.createElement("li");
  const remove = Object.assign(document.createElement("button"), { type: "button", className: "quiet remove", textContent: "×" });
  remove.ariaLabel = `Remove ${file.name}`;
  remove.addEventListener("click", () => { attach(kept.filter((each) => each !== file)); box.focus(); });
  if (!file.type.startsWith("image/")) {
    item.append(Object.assign(document.createElement("bdi"), { className: "file", textContent: file.name }), remove);
    return item;
  }
  const image = Object.assign(document.createElement("img"), { alt: file.name });
  const reader = new FileReader(); // the pages' policy allows data URLs
  reader.onload = () => { image.src = reader.result; };
  reader.readAsDataURL(file);
  item.append(image, remove);
  return item;
}

if (input) {
  const button = document.getElementById("attach");
  button.hidden = false;
  input.hidden = about.hidden = true;
  button.addEventListener("click", () => input.click());
  input.addEventListener("change", () => addFiles([...input.files]));
  box.addEventListener("paste", (event) => {
    const { files, types } = event.clipboardData;
    if (!files.length || types.includes("text/plain")) return; // some programs add a picture of the text
    event.preventDefault();
    addFiles(files);
  });
  const main = document.getElementById("main");
  const brings = (event) => event.dataTransfer?.types.includes("Files");
  main.addEventListener("dragover", (event) => {
    if (!brings(event)) return;
    event.preventDefault();
    form.classList.add("dropping");
  });
  main.addEventListener("dragleave", () => form.classList.remove("dropping"));
  main.addEventListener("drop", (event) => {
    form.classList.remove("dropping");
    if (!brings(event)) return;
    event.preventDefault();
    addFiles(event.dataTransfer.files);
  });
  form.addEventListener("htmx:configRequest", ({ detail }) => { if (hasFiles()) detail.timeout = LONGEST_UPLOAD; });
  form.addEventListener("htmx:beforeRequest", () => { sent = kept.map(nameOf); });
  form.addEventListener("htmx:xhr:progress", ({ detail }) => {
    if (!sent.length || !detail.lengthComputable) return;
    bar.hidden = false;
    bar.value = detail.loaded / detail.total;
  });
  form.addEventListener("htmx:afterRequest", ({ detail }) => {
    bar.hidden = true;
    if (detail.successful && sent.length) attach(kept.filter((each) => !sent.includes(nameOf(each)))); // what came meanwhile stays
  });
  show();
}
