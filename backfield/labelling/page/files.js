// The list of files: pictures, and volumes, which have many images, their slices.
import { element } from "./dom.js";
import { address } from "./server.js";

export class FileList {
  constructor(list, go) {
    this.list = list;
    this.go = go; // go(number of an image)
    this.files = [];
    this.images = [];
  }

  // The file that an image is in.
  fileOf(number) { return this.files.find((file) => number >= file.first && number < file.first + file.count); }

  // The slices of a file that have strokes, counted from its first.
  painted(file) {
    return this.images.slice(file.first, file.first + file.count).flatMap((image, k) => (image.painted > 0 ? [k] : []));
  }

  // Where a file opens: in its middle, or at the painted slice next to that.
  middle(file) {
    const half = Math.floor(file.count / 2), near = this.painted(file).sort((a, b) => Math.abs(a - half) - Math.abs(b - half));
    return file.first + (near.length ? near[0] : half);
  }

  show(files, images, current) {
    [this.files, this.images] = [files, images];
    if (this.list.children.length !== files.length) this.list.replaceChildren(...files.map((file, k) => this.button(file, k)));
    files.forEach((file, k) => {
      const button = this.list.children[k], painted = this.painted(file);
      button.setAttribute("aria-current", String(file === this.fileOf(current)));
      button.querySelector(".share").textContent = this.share(file, painted);
      button.querySelector(".state").classList.toggle("painted", painted.length > 0);
    });
    this.current = current;
  }

  button(file, k) {
    const state = element("span", { className: "state" }, element("span", { className: "dot" }), element("span", { className: "share" }));
    const picture = element("img", { src: address(`/api/images/${file.first + Math.floor(file.count / 2)}/thumbnail`), alt: "", loading: "lazy" });
    const open = () => { if (this.files[k] !== this.fileOf(this.current)) this.go(this.middle(this.files[k])); };
    return element("button", { onclick: open, title: file.name }, picture, element("span", { className: "name", textContent: file.name }), state);
  }

  share(file, painted) {
    if (!painted.length) return "not painted";
    if (file.count > 1) return `${painted.length} of ${file.count} slices`;
    const share = this.images[file.first].painted;
    return `${(100 * share).toFixed(share < 0.01 ? 2 : 1)} % painted`;
  }
}
