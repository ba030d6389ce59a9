// Slices of a volume: a slider with marks where somebody has painted, and pictures that are fetched ahead.
import { getBitmap } from "./server.js";

// Pixels of pictures that are kept.
const ROOM = 64e6;

// Pictures of images by number; the last ones are kept.
export class Bitmaps {
  constructor() { this.kept = new Map(); }

  // A promise of the picture of an image.
  get(number, pixels) {
    const found = this.kept.get(number) || getBitmap(`/api/images/${number}/pixels`);
    this.kept.delete(number);
    this.kept.set(number, found);
    found.catch(() => this.kept.delete(number));
    while (this.kept.size > Math.max(8, ROOM / pixels)) this.kept.delete(this.kept.keys().next().value);
    return found;
  }
}

export class Slider {
  constructor(box, go) {
    this.box = box;
    this.go = go; // go(number of a slice)
    [this.range, this.marks, this.text] = ["input", ".marks", "output"].map((what) => box.querySelector(what));
    const [back, on] = box.querySelectorAll("button");
    back.onclick = () => this.step(-1);
    on.onclick = () => this.step(1);
    this.range.oninput = () => this.go(Number(this.range.value) - 1);
  }

  step(by) {
    if (this.box.hidden) return;
    const to = Math.max(1, Math.min(Number(this.range.max), Number(this.range.value) + by));
    if (to === Number(this.range.value)) return;
    this.range.value = to;
    this.go(to - 1);
  }

  // Show slice k of a file with so many; painted are the numbers of slices with strokes.
  show(k, count, painted) {
    this.box.hidden = count < 2;
    this.box.parentElement.classList.toggle("volume", count > 1);
    this.range.max = count;
    this.range.value = k + 1;
    this.text.textContent = `${k + 1} / ${count}`;
    const key = `${count}:${painted.join()}`;
    if (key === this.key) return;
    this.key = key;
    this.marks.replaceChildren(...painted.map((at) => {
      const mark = document.createElement("i");
      mark.style.left = `${(100 * at) / Math.max(1, count - 1)}%`;
      return mark;
    }));
  }
}
