// Layers: planes of bytes -> pictures of the size of the image.
import { HIDDEN, putBox } from "./strokes.js";

export const LAYERS = [
  { key: "image", name: "Image", on: true, opacity: 1 },
  { key: "classifier", name: "Classifier alone", on: false, opacity: 0.6 },
  { key: "field", name: "Field", on: true, opacity: 0.55 },
  { key: "uncertainty", name: "Uncertainty", on: false, opacity: 0.8 },
  { key: "borders", name: "Borders", on: true, opacity: 0.9 },
  { key: "scribbles", name: "Scribbles", on: true, opacity: 0.9 },
];
// Planes of an answer of /layers, in this order.
const PLANES = ["field", "sure", "entropy", "classifier", "classifierSure"];

export class Pictures {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.scribbles = new Uint8Array(width * height).fill(HIDDEN);
    this.planes = {};
    for (const name of PLANES) this.planes[name] = new Uint8Array(width * height).fill(name === "field" || name === "classifier" ? HIDDEN : 0);
    this.canvases = {};
    this.dirty = {};
    for (const { key } of LAYERS) if (key !== "image") this.touch(key, [0, 0, width, height]);
  }

  // Take a box of new planes.
  put(box, planes) {
    planes.forEach((plane, k) => putBox(this.planes[PLANES[k]], this.width, box, plane));
    for (const key of ["classifier", "field", "uncertainty"]) this.touch(key, box);
    this.touch("borders", [Math.max(0, box[0] - 1), Math.max(0, box[1] - 1), box[2] + 2, box[3] + 2]);
  }

  putScribbles(box, plane) {
    putBox(this.scribbles, this.width, box, plane);
    this.touch("scribbles", box);
  }

  // Note that a box of a layer must be drawn again.
  touch(key, box) {
    const old = this.dirty[key];
    if (!old) { this.dirty[key] = box.slice(); return; }
    const x = Math.min(old[0], box[0]), y = Math.min(old[1], box[1]);
    this.dirty[key] = [x, y, Math.max(old[0] + old[2], box[0] + box[2]) - x, Math.max(old[1] + old[3], box[1] + box[3]) - y];
  }

  recolour() { for (const key of ["classifier", "field", "scribbles"]) this.touch(key, [0, 0, this.width, this.height]); }

  // The canvas of a layer, up to date.
  canvas(key, colours) {
    if (!this.canvases[key]) {
      const canvas = document.createElement("canvas");
      canvas.width = this.width;
      canvas.height = this.height;
      this.canvases[key] = canvas;
    }
    if (this.dirty[key]) {
      this.draw(key, this.dirty[key], colours);
      this.dirty[key] = null;
    }
    return this.canvases[key];
  }

  draw(key, box, colours) {
    const x = Math.max(0, box[0]), y = Math.max(0, box[1]);
    const w = Math.min(this.width, box[0] + box[2]) - x, h = Math.min(this.height, box[1] + box[3]) - y;
    if (w <= 0 || h <= 0) return;
    const picture = new ImageData(w, h), out = new Uint32Array(picture.data.buffer);
    if (key === "borders") this.drawBorders(out, x, y, w, h);
    else if (key === "uncertainty") this.fillFrom(out, x, y, w, h, (at) => RAMP[this.planes.entropy[at]]);
    else if (key === "scribbles") {
      const packed = colours.map((c) => pack(c, 255));
      this.fillFrom(out, x, y, w, h, (at) => (this.scribbles[at] === HIDDEN ? 0 : packed[this.scribbles[at]]));
    } else {
      const labels = this.planes[key === "field" ? "field" : "classifier"], sure = this.planes[key === "field" ? "sure" : "classifierSure"];
      const packed = colours.map((c) => pack(c, 0));
      this.fillFrom(out, x, y, w, h, (at) => (labels[at] === HIDDEN ? 0 : (packed[labels[at]] | (sure[at] << 24)) >>> 0));
    }
    this.canvases[key].getContext("2d").putImageData(picture, x, y);
  }

  fillFrom(out, x, y, w, h, colour) {
    for (let row = 0; row < h; row++) {
      let at = (y + row) * this.width + x, to = row * w;
      for (let column = 0; column < w; column++) out[to++] = colour(at++);
    }
  }

  drawBorders(out, x, y, w, h) {
    const labels = this.planes.field, width = this.width;
    const light = pack([255, 255, 255], 255), dark = pack([0, 0, 0], 200);
    for (let row = 0; row < h; row++) {
      for (let column = 0; column < w; column++) {
        const at = (y + row) * width + x + column, mine = labels[at];
        const right = x + column + 1 < width ? labels[at + 1] : mine, below = y + row + 1 < this.height ? labels[at + width] : mine;
        const left = x + column > 0 ? labels[at - 1] : mine, above = y + row > 0 ? labels[at - width] : mine;
        out[row * w + column] = right !== mine || below !== mine ? light : left !== mine || above !== mine ? dark : 0;
      }
    }
  }
}

export function rgb(colour) {
  return [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
}

function pack(c, alpha) { return (((alpha << 24) | (c[2] << 16) | (c[1] << 8) | c[0]) >>> 0); }

// From clear to purple to yellow: the more uncertain, the brighter and the less transparent.
const RAMP = Array.from({ length: 256 }, (_, v) => {
  const t = v / 255, stops = [[60, 10, 90], [190, 40, 110], [250, 140, 50], [255, 250, 160]];
  const at = Math.min(2.999, t * 3), k = Math.floor(at), s = at - k;
  return pack(stops[k].map((a, i) => Math.round(a + (stops[k + 1][i] - a) * s)), Math.round(255 * Math.min(1, 1.6 * t)));
});
