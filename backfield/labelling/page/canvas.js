// The canvas: zoom, pan, pointers. A view survives everything but another image.

// Where an image of a given length starts to fill the room, as close to the wish as possible; a short one is centred.
function inside(wish, room, length) {
  return length <= room ? (room - length) / 2 : Math.min(0, Math.max(room - length, wish));
}

export class View {
  constructor(canvas, handlers) {
    this.canvas = canvas;
    this.handlers = handlers; // draw(context), begin(point), move(points), end(cancelled), turn(steps)
    this.scale = 1;
    this.x = 0;
    this.y = 0;
    this.width = 1;
    this.height = 1;
    this.pointers = new Map();
    this.gesture = null;
    this.panning = false;
    this.cursor = null;
    this.turned = 0;
    this.whole = true; // nobody has moved the image since it was shown whole
    new ResizeObserver(() => this.resize()).observe(canvas);
    canvas.addEventListener("pointerdown", (e) => this.down(e));
    canvas.addEventListener("pointermove", (e) => this.moved(e));
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (e) => this.up(e, kind === "pointercancel"));
    canvas.addEventListener("pointerleave", () => { this.cursor = null; this.redraw(); });
    canvas.addEventListener("contextmenu", (e) => e.preventDefault());
    canvas.addEventListener("wheel", (e) => {
      e.preventDefault();
      if (e.shiftKey) { this.turn((e.deltaY || e.deltaX) * (e.deltaMode === 1 ? 40 : 1)); return; }
      this.zoom(Math.exp(-e.deltaY * (e.deltaMode === 1 ? 0.05 : 0.0016)), ...this.place(e));
    }, { passive: false });
  }

  // Show an image of this size whole.
  fit(width = this.width, height = this.height) {
    this.width = width;
    this.height = height;
    const box = this.canvas.getBoundingClientRect();
    this.scale = Math.min(box.width / width, box.height / height) * 0.96 || 1;
    this.x = (box.width - width * this.scale) / 2;
    this.y = (box.height - height * this.scale) / 2;
    this.whole = true;
    this.redraw();
  }

  // Bring a place of the image to the middle, near enough to see it.
  centre(x, y, span = 260) {
    const box = this.canvas.getBoundingClientRect();
    const near = Math.min(box.width, box.height) / Math.min(span, this.width, this.height);
    if (this.scale < near) this.scale = near;
    this.x = inside(box.width / 2 - x * this.scale, box.width, this.width * this.scale);
    this.y = inside(box.height / 2 - y * this.scale, box.height, this.height * this.scale);
    this.whole = false;
    this.redraw();
  }

  zoom(factor, atX, atY) {
    const box = this.canvas.getBoundingClientRect();
    const least = Math.min(1, Math.min(box.width / this.width, box.height / this.height) / 2);
    const scale = Math.min(48, Math.max(least, this.scale * factor));
    this.x = atX - (atX - this.x) * (scale / this.scale);
    this.y = atY - (atY - this.y) * (scale / this.scale);
    this.scale = scale;
    this.whole = false;
    this.redraw();
  }

  // The wheel with Shift: a step for each notch.
  turn(delta) {
    this.turned += delta;
    const steps = Math.trunc(this.turned / 100);
    this.turned -= 100 * steps;
    if (steps) this.handlers.turn(steps);
  }

  // The part of the image that is seen: [x, y, width, height].
  visible() {
    const box = this.canvas.getBoundingClientRect();
    const x0 = Math.max(0, Math.floor(-this.x / this.scale)), y0 = Math.max(0, Math.floor(-this.y / this.scale));
    const x1 = Math.min(this.width, Math.ceil((box.width - this.x) / this.scale)), y1 = Math.min(this.height, Math.ceil((box.height - this.y) / this.scale));
    return [x0, y0, Math.max(0, x1 - x0), Math.max(0, y1 - y0)];
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  point(event) {
    const [x, y] = this.place(event);
    return [(x - this.x) / this.scale, (y - this.y) / this.scale];
  }

  resize() {
    const box = this.canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(box.width * ratio));
    this.canvas.height = Math.max(1, Math.round(box.height * ratio));
    if (this.whole) this.fit();
    this.redraw();
  }

  redraw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = null;
      const ratio = window.devicePixelRatio || 1, context = this.canvas.getContext("2d");
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.clearRect(0, 0, this.canvas.width, this.canvas.height);
      context.setTransform(this.scale * ratio, 0, 0, this.scale * ratio, this.x * ratio, this.y * ratio);
      context.imageSmoothingEnabled = this.scale < 1.5;
      this.handlers.draw(context);
    });
  }

  down(event) {
    event.preventDefault();
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.place(event));
    if (event.pointerType === "touch" && this.pointers.size === 2) { // a second finger: not a stroke
      if (this.gesture === "paint") this.handlers.end(true);
      this.gesture = "pinch";
    } else if (this.pointers.size === 1) {
      const pan = this.panning || event.button === 1 || event.button === 2;
      this.gesture = pan ? "pan" : "paint";
      if (!pan) this.handlers.begin(this.point(event));
    }
  }

  moved(event) {
    this.cursor = this.point(event);
    const before = this.pointers.get(event.pointerId);
    if (!before) { this.redraw(); return; }
    const now = this.place(event);
    if (this.gesture === "pan") {
      this.whole = false;
      this.x += now[0] - before[0];
      this.y += now[1] - before[1];
    } else if (this.gesture === "pinch" && this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      const was = Math.hypot(before[0] - other[0], before[1] - other[1]), is = Math.hypot(now[0] - other[0], now[1] - other[1]);
      this.x += (now[0] - before[0]) / 2;
      this.y += (now[1] - before[1]) / 2;
      if (was > 0 && is > 0) this.zoom(is / was, (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    } else if (this.gesture === "paint") {
      const all = event.getCoalescedEvents ? event.getCoalescedEvents() : [];
      this.handlers.move((all.length ? all : [event]).map((e) => this.point(e)));
    }
    this.pointers.set(event.pointerId, now);
    this.redraw();
  }

  up(event, cancelled) {
    if (!this.pointers.delete(event.pointerId)) return;
    if (this.gesture === "paint") this.handlers.end(cancelled);
    if (this.pointers.size === 0) this.gesture = null;
    else if (this.gesture === "paint") this.gesture = null;
  }
}
