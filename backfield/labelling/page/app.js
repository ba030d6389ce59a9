// The page: what is chosen, what is painted, what the server thinks of it.
import { View } from "./canvas.js";
import { LAYERS, Pictures, rgb } from "./layers.js";
import { $, element } from "./dom.js";
import { FileList } from "./files.js";
import { recall, remember } from "./memory.js";
import { showExport, showStatus } from "./panels.js";
import { Bitmaps, Slider } from "./slices.js";
import { HIDDEN, paintSegment } from "./strokes.js";
import { Queue, Refused, getJSON, getPlanes, postJSON } from "./server.js";

const page = { labels: [], files: [], images: [], image: -1, shown: -1, wanted: null, loaded: false, label: 0, tool: "brush", size: 11, picture: null, bitmap: null, stroke: null, version: 0, revision: 0, watch: null, marker: null, named: 0, step: 0, quiet: 0 };
const layers = LAYERS.map((layer) => ({ ...layer, ...JSON.parse(recall(`layer-${layer.key}`) || "{}") }));
const bitmaps = new Bitmaps();
const list = new FileList($("images"), go);
const slider = new Slider($("slices"), (k) => go(list.fileOf(page.image).first + k));
const view = new View($("canvas"), { draw, begin, move, end, turn: (steps) => slider.step(steps) });
const queue = new Queue(saved);
const unsent = () => queue.waiting.some((each) => each.path.startsWith(`/api/images/${page.image}/`));
const colours = () => page.labels.map((label) => rgb(label.colour));

// ---- drawing ----

function draw(context) {
  if (!page.picture) return;
  for (const layer of layers) {
    if (!layer.on || layer.opacity === 0) continue;
    context.globalAlpha = layer.opacity;
    const source = layer.key === "image" ? page.bitmap : page.picture.canvas(layer.key, colours());
    if (source) context.drawImage(source, 0, 0);
  }
  context.globalAlpha = 1;
  if (page.marker) ring(context, page.marker, 28 / view.scale, "#ffe14d", true);
  if (view.cursor && page.tool !== "fill" && !view.panning) {
    ring(context, view.cursor, page.size / 2, page.tool === "erase" ? "#ffffff" : page.labels[page.label]?.colour || "#fff", false);
  }
}

function ring(context, at, radius, colour, dashed) {
  for (const [style, width] of [["rgba(0,0,0,.7)", 2], [colour, 1]]) {
    context.beginPath();
    context.setLineDash(dashed && style === colour ? [9 / view.scale, 5 / view.scale] : []);
    context.lineWidth = (dashed ? 3 : 1.5) * width / view.scale;
    context.strokeStyle = style;
    context.arc(at[0], at[1], radius, 0, 2 * Math.PI);
    context.stroke();
  }
  context.setLineDash([]);
}

// ---- painting ----

const round = (point) => point.map((v) => Math.round(v * 100) / 100);

function begin(point) {
  if (!page.picture || !page.labels.length || page.shown !== page.image) return;
  page.stroke = { kind: page.tool, label: page.label, size: page.size, points: [round(point)] };
  page.marker = null;
  if (page.tool !== "fill") segment(page.stroke.points[0], page.stroke.points[0]);
}

function move(points) {
  const stroke = page.stroke;
  if (!stroke || stroke.kind === "fill") return;
  for (const point of points.map(round)) {
    const last = stroke.points[stroke.points.length - 1];
    if (Math.hypot(point[0] - last[0], point[1] - last[1]) < 0.5) continue;
    stroke.points.push(point);
    segment(last, point);
    if (stroke.points.length >= 15000) { end(false); begin(point); return; }
  }
}

function segment(a, b) {
  const { stroke, picture } = page, value = stroke.kind === "erase" ? HIDDEN : stroke.label;
  picture.touch("scribbles", paintSegment(picture.scribbles, picture.width, picture.height, a, b, stroke.size, value));
  view.redraw();
}

function end(cancelled) {
  const stroke = page.stroke, image = page.image;
  page.stroke = null;
  if (!stroke) return;
  if (cancelled) { loadScribbles(); return; }
  document.documentElement.dataset.sent = String(performance.now());
  queue.push(`/api/images/${image}/strokes`, { ...stroke, view: view.visible() }, (answer) => painted(image, answer));
}

function painted(image, answer) {
  if (image !== page.image) return;
  if (!answer) { if (answer === undefined) loadScribbles(); return; }
  page.revision = answer.header.revision;
  if (!page.loaded) loadScribbles();
  else if (!page.stroke && !unsent()) page.picture.putScribbles(answer.header.box, answer.planes[0]);
  document.documentElement.dataset.revision = page.revision;
  view.redraw();
}

function change(kind) {
  const image = page.image;
  page.marker = null;
  queue.push(`/api/images/${image}/${kind}`, () => ({ view: view.visible() }), (answer) => painted(image, answer));
}

function saved(waiting, problem) {
  if (problem) say(problem, true);
  else if (waiting === 0) say("");
  document.documentElement.dataset.waiting = waiting;
}

async function loadScribbles() {
  const image = page.image, answer = await getPlanes(`/api/images/${image}/scribbles`);
  if (image !== page.image || page.stroke || unsent()) return;
  page.loaded = true;
  page.picture.putScribbles(answer.header.box, answer.planes[0]);
  page.revision = answer.header.revision;
  view.redraw();
}

// ---- images ----

async function open(number, place) {
  if (number === page.image && !place) return;
  if (number !== page.image) {
    if (page.stroke) end(false);
    page.watch?.abort();
    const file = list.fileOf(number), same = file === list.fileOf(page.image);
    page.image = number;
    page.version = 0;
    delete document.documentElement.dataset.version;
    page.revision = 0;
    page.loaded = false;
    page.marker = null;
    const { width, height } = page.images[number];
    page.picture = new Pictures(width, height);
    if (!same) page.bitmap = null;
    remember("image", String(number));
    showFiles();
    if (!same) view.fit(width, height);
    await Promise.all([loadScribbles().then(() => { if (page.image === number) watch(); }), showPixels(number, file)]);
  }
  if (place) {
    page.marker = [place.x, place.y];
    view.centre(place.x, place.y);
  }
}

// Show a picture when it is there; until then that of the slice before stays, and nobody can paint.
async function showPixels(number, file) {
  const { width, height } = page.images[number], ahead = [1, -1, 2, -2].map((by) => number + by);
  const bitmap = await bitmaps.get(number, width * height).catch((error) => { if (page.image === number) page.bitmap = null; throw error; });
  if (page.image !== number) return;
  page.bitmap = bitmap;
  page.shown = number;
  document.documentElement.dataset.shown = number;
  view.redraw();
  for (const other of ahead) if (list.fileOf(other) === file) bitmaps.get(other, width * height).catch(() => {});
}

// Go to an image; of those that are asked for while one opens, the last.
async function go(number) {
  const busy = page.wanted !== null;
  page.wanted = number;
  if (busy) return;
  while (page.wanted !== page.image) {
    const wanted = page.wanted;
    try { await open(wanted); } catch (error) { say(error.message, true); }
    if (page.wanted === wanted) break;
  }
  page.wanted = null;
}

// Ask for newer layers, again and again.
async function watch() {
  page.watch?.abort();
  const control = (page.watch = new AbortController()), image = page.image;
  while (!control.signal.aborted) {
    try {
      const path = `/api/images/${image}/layers?after=${page.version}&seen=${page.revision}&named=${page.named}&step=${page.step}&view=${view.visible().join(",")}`;
      const answer = await getPlanes(path, control.signal);
      if (control.signal.aborted) return;
      await takeLayers(answer);
    } catch (error) {
      if (control.signal.aborted) return;
      say(error instanceof Refused ? error.message : "The server does not answer.", true);
      await new Promise((resume) => setTimeout(resume, 1500));
    }
  }
}

async function takeLayers({ header, planes }) {
  const image = page.image;
  if (planes.length) {
    page.picture.put(header.box, planes);
    page.version = header.version;
    view.redraw();
    requestAnimationFrame(() => {
      if (page.image !== image) return;
      document.documentElement.dataset.version = header.version;
      document.documentElement.dataset.seen = String(performance.now());
    });
  }
  takeStatus(header.status);
  if ((header.revision !== page.revision || !page.loaded) && !page.stroke && !unsent()) await loadScribbles();
  takeExport(header.export);
  if (header.label_changes !== page.named) await refresh();
}

async function refresh() {
  const state = await getJSON("/api/state");
  take(state);
}

function take(state) {
  page.labels = state.labels;
  page.named = state.label_changes;
  page.files = state.files;
  page.images = state.images;
  $("problems").textContent = state.problems.join(" ");
  $("problems").hidden = !state.problems.length;
  $("slice-keys").hidden = state.files.every((file) => file.count === 1);
  document.title = `${state.folder.split("/").pop()} – backfield label`;
  page.picture?.recolour();
  showLabels();
  showFiles();
  takeStatus(state.status);
  takeExport(state.export);
  view.redraw();
}

// ---- what surrounds the canvas ----

function say(text, bad = false) {
  const message = $("message");
  message.textContent = text;
  message.hidden = !text;
  message.classList.toggle("bad", bad);
  clearTimeout(page.quiet);
  page.quiet = setTimeout(() => { message.hidden = true; }, 6000);
}

function showFiles() {
  list.show(page.files, page.images, page.image);
  const file = list.fileOf(page.image);
  if (!file) return;
  const at = list.fileOf(page.wanted ?? page.image) === file ? page.wanted ?? page.image : page.image;
  slider.show(at - file.first, file.count, list.painted(file));
}

function showLabels() {
  if (page.label >= page.labels.length) page.label = 0;
  $("labels").replaceChildren(...page.labels.map((label, number) => {
    const colour = element("input", { type: "color", value: label.colour, title: "Colour", onchange: (e) => label_(number, { colour: e.target.value }) });
    const name = element("input", { type: "text", value: label.name, maxLength: 60, onfocus: () => choose(number), onchange: (e) => label_(number, { name: e.target.value }) });
    name.setAttribute("aria-label", `Name of label ${number + 1}`);
    const pick = element("button", { className: "pick", textContent: number < 9 ? String(number + 1) : "·", title: "Paint this label", onclick: () => choose(number) });
    return element("li", { className: number === page.label ? "chosen" : "" }, pick, colour, name);
  }));
}

function choose(number) {
  if (number >= page.labels.length) return;
  page.label = number;
  if (page.tool === "erase" || page.tool === "pan") tool("brush");
  [...$("labels").children].forEach((item, k) => item.classList.toggle("chosen", k === number));
  view.redraw();
}

async function label_(number, change) {
  try {
    take(await (await postJSON("/api/labels", { number, ...change })).json());
    say("");
  } catch (error) {
    say(error.message, true);
    showLabels();
  }
}

function showLayers() {
  $("layers").replaceChildren(...layers.map((layer) => {
    const keep = () => { remember(`layer-${layer.key}`, JSON.stringify({ on: layer.on, opacity: layer.opacity })); view.redraw(); };
    const id = `layer-${layer.key}`;
    const box = element("input", { type: "checkbox", id, checked: layer.on, onchange: (e) => { layer.on = e.target.checked; keep(); } });
    const slider = element("input", { type: "range", min: 0, max: 100, value: 100 * layer.opacity, oninput: (e) => { layer.opacity = e.target.value / 100; keep(); } });
    slider.setAttribute("aria-label", `Opacity of ${layer.name}`);
    return element("li", {}, box, element("label", { htmlFor: id, textContent: layer.name }), slider);
  }));
}

function takeStatus(status) {
  if (!status) return;
  showStatus(status);
  for (const [number, painted] of Object.entries(status.painted || {})) if (page.images[number]) page.images[number].painted = painted;
  showFiles();
}

function takeExport(state) {
  if (state.step < page.step) return; // an older answer that came late
  page.step = state.step;
  showExport(state);
}

async function startExport() {
  try {
    takeExport(await (await postJSON("/api/export", {})).json());
  } catch (error) { say(error.message, true); }
}

async function next() {
  try {
    const place = await getJSON(`/api/images/${page.image}/next`);
    await open(place.image, place);
    say(place.reason);
  } catch (error) { say(error.message, true); }
}

function tool(name) {
  page.tool = name;
  view.panning = name === "pan";
  for (const button of document.querySelectorAll(".tool")) button.setAttribute("aria-pressed", String(button.id === name));
  $("canvas").style.cursor = name === "pan" ? "grab" : "crosshair";
  view.redraw();
}

function resize(size) {
  page.size = Math.max(1, Math.min(120, Math.round(size)));
  $("size").value = page.size;
  $("size-value").textContent = page.size;
  view.redraw();
}

// ---- keys and buttons ----

window.addEventListener("keydown", (event) => {
  if (event.target instanceof HTMLInputElement && event.target.type !== "range" && event.target.type !== "checkbox") return;
  const key = event.key.toLowerCase();
  if ((event.ctrlKey || event.metaKey) && key === "z") { event.preventDefault(); change(event.shiftKey ? "redo" : "undo"); return; }
  if ((event.ctrlKey || event.metaKey) && key === "y") { event.preventDefault(); change("redo"); return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^[1-9]$/.test(key)) choose(Number(key) - 1);
  else if (key === "[") resize(page.size / 1.25 - 0.5);
  else if (key === "]") resize(page.size * 1.25 + 0.5);
  else if (key === "b") tool("brush");
  else if (key === "e") tool("erase");
  else if (key === "f") tool("fill");
  else if (key === "n") next();
  else if (key === "," || key === ".") slider.step(key === "." ? 1 : -1);
  else if (key === "0") view.fit();
  else if (key === " ") { event.preventDefault(); view.panning = true; }
});
window.addEventListener("keyup", (event) => { if (event.key === " ") view.panning = page.tool === "pan"; });
window.addEventListener("beforeunload", (event) => { if (queue.waiting.length) event.preventDefault(); });
for (const name of ["brush", "erase", "fill", "pan"]) $(name).onclick = () => tool(name);
$("size").oninput = (event) => resize(Number(event.target.value));
$("undo").onclick = () => change("undo");
$("redo").onclick = () => change("redo");
$("fit").onclick = () => view.fit();
$("next").onclick = next;
$("export").onclick = startExport;
$("new-label").onsubmit = async (event) => {
  event.preventDefault();
  try {
    take(await (await postJSON("/api/labels", { name: $("new-name").value })).json());
    $("new-name").value = "";
    choose(page.labels.length - 1);
    say("");
  } catch (error) { say(error.message, true); }
};

showLayers();
try {
  await refresh();
  const kept = recall("image");
  await go(kept !== null && Number(kept) < page.images.length ? Number(kept) : list.middle(page.files[0]));
  document.documentElement.dataset.ready = "yes";
} catch (error) { say(error.message, true); }
