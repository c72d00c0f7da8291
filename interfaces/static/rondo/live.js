// The text of the running answer, as its pieces arrive (docs/api.md, "Live text").

import { GrowingText } from "./growing.js";

export class LiveAnswer {
  turn = null;
  attempt = 0;
  step = 0;
  try = 0;
  earlier = "";
  text = "";
  action = "";

  // `shown` is called when the text was rendered, which changes its height
  constructor(url, shown) {
    this.growing = new GrowingText(url, shown);
  }

  hear(type, content) {
    if (content.turn !== this.turn || content.attempt !== this.attempt) {
      Object.assign(this, { turn: content.turn, attempt: content.attempt, step: 0, try: 0, earlier: "", text: "" });
    }
    if (type === "snapshot") {
      this.earlier = content.earlier ?? "";
      this.text = (content.text ?? "").slice(this.earlier.length);
    } else if (content.step > this.step) {
      this.earlier = joined(this.earlier, this.text);
      this.text = content.status === "retrying" ? "" : content.text;
    } else if (content.status === "retrying") {
      this.text = "";
      this.action = `Trying again${content.wait_seconds ? ` in ${Math.ceil(content.wait_seconds)} s` : ""}…`;
    } else if (content.try > this.try) {
      this.text = content.text;
    } else {
      this.text += content.text;
    }
    this.step = Math.max(this.step, content.step ?? 0);
    this.try = content.try ?? 0;
    if (type !== "status") this.action = "";
    this.show();
  }

  // a stream begins with the text so far, or with its first piece
  begin() { this.attempt = 0; }

  doing(action) {
    this.action = action;
    this.show();
  }

  end(turn) {
    if (turn === this.turn) this.turn = null;
    this.action = "";
  }

  show() {
    const place = document.getElementById("live");
    if (!place) return;
    if (Number(place.dataset.turn) === this.turn) this.growing.show(place.querySelector(".text"), joined(this.earlier, this.text));
    if (this.action) place.querySelector(".doing").textContent = this.action;
  }
}

function joined(before, after) {
  return before && after && !before.endsWith("\n") ? `${before}\n\n${after}` : before + after;
}
