// The text of a running answer on the page: new pieces at once as they are, then rendered by the server.
// Closed blocks are rendered once. One request at a time; a pause follows that is longer when the server is slow.

const LONGEST = 20000; // characters of an unfinished block, as on the server
const PAUSE = 200; // ms at least between two requests
const SHARE = 4; // the pause is at least so many times as long as the last request took
const BLOCKS = "P, LI, UL, OL, BLOCKQUOTE, PRE, PRE > CODE, H3, H4, H5, H6, TABLE, TBODY, TR, TD"; // others are complete

export class GrowingText {
  #source = ""; // of the closed blocks
  #closed = "";
  #growing = { source: "", html: "" };
  #text = "";
  #waits = 0;
  #place = null;

  constructor(url, shown) {
    this.url = url;
    this.shown = shown;
  }

  // all of the text so far, in this element; the server's updates of the page empty it
  show(place, text) {
    if (place !== this.#place || !text.startsWith(this.#source)) this.#begin(place, text);
    if (text === this.#text && place.firstChild) return;
    this.#text = text;
    this.#draw();
    this.#ask();
  }

  #begin(place, text) {
    this.#place = place;
    if (text.startsWith(this.#source)) this.#insert(this.#closed);
    else {
      place.replaceChildren();
      this.#source = this.#closed = "";
    }
  }

  #insert(html) { // before the growing block
    const found = document.createElement("template");
    found.innerHTML = html; // sanitised by the server
    this.#place.insertBefore(found.content, this.#place.querySelector(":scope > .growing"));
  }

  #draw() {
    let growing = this.#place.querySelector(":scope > .growing");
    if (!growing) {
      growing = Object.assign(document.createElement("div"), { className: "growing" });
      this.#place.append(growing);
    }
    const rest = this.#text.slice(this.#source.length);
    const known = rest.startsWith(this.#growing.source) ? this.#growing : { source: "", html: "" };
    const tail = growing.querySelector(".tail");
    const added = rest.slice(known.source.length);
    const gap = known.html.includes("<pre") ? "" : known.source.slice(known.source.trimEnd().length); // rendering drops it
    const textContent = added && gap + added;
    if (tail && growing.dataset.of === known.source) tail.textContent = textContent;
    else {
      growing.dataset.of = known.source;
      growing.innerHTML = known.html; // sanitised by the server
      const piece = Object.assign(document.createElement("span"), { className: "tail", textContent });
      let end = growing;
      while (end.lastElementChild?.matches(BLOCKS) && !end.lastElementChild.nextSibling?.textContent.trim()) end = end.lastElementChild;
      end.append(piece);
    }
  }

  #ask() {
    if (this.#waits) return;
    const rest = this.#text.slice(this.#source.length);
    if (!rest || rest.length > LONGEST || rest === this.#growing.source || document.visibilityState !== "visible") return;
    this.#waits = setTimeout(() => this.#render(this.#source, this.#text.slice(this.#source.length)), 0);
  }

  async #render(source, rest) {
    const began = performance.now();
    try {
      const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
      const answer = await fetch(this.url, { method: "POST", headers: { "X-CSRFToken": token, "HX-Request": "true" }, body: new URLSearchParams({ text: rest }) });
      if (answer.ok) this.#take(source, rest, await answer.json());
    } catch { /* the text stays as it is; the next piece asks again */ }
    setTimeout(() => { this.#waits = 0; this.#ask(); }, Math.max(PAUSE, SHARE * (performance.now() - began)));
  }

  #take(source, rest, { closed, length, growing }) {
    if (source !== this.#source || !this.#text.startsWith(source + rest)) return; // the text was replaced meanwhile
    this.#source += rest.slice(0, length);
    this.#closed += closed;
    this.#growing = { source: rest.slice(length), html: growing };
    if (!this.#place.isConnected) return;
    this.#insert(closed);
    const place = this.#place.querySelector(":scope > .growing");
    if (place) delete place.dataset.of;
    this.#draw();
    this.shown();
  }
}
