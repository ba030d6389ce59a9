// The page: what is chosen, what is painted, what the server thinks of it.
import { View } from "./canvas.js";
import { LAYERS, Pictures, rgb } from "./layers.js";
import { HIDDEN, paintSegment } from "./strokes.js";
import { Queue, Refused, address, getJSON, getPlanes, postJSON } from "./server.js";

const $ = (id) => document.getElementById(id);
const page = { labels: [], images: [], image: -1, label: 0, tool: "brush", size: 11, picture: null, bitmap: null, stroke: null, version: 0, revision: 0, watch: null, marker: null, named: 0, step: 0, quiet: 0 };
const layers = LAYERS.map((layer) => ({ ...layer, ...JSON.parse(sessionStorage.getItem(`layer-${layer.key}`) || "{}") }));
const view = new View($("canvas"), { draw, begin, move, end });
const queue = new Queue(saved);
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
  if (!page.picture || !page.labels.length) return;
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
  if (!page.stroke && !queue.waiting.length) page.picture.putScribbles(answer.header.box, answer.planes[0]);
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
  if (image !== page.image || page.stroke || queue.waiting.length) return;
  page.picture.putScribbles(answer.header.box, answer.planes[0]);
  page.revision = answer.header.revision;
  view.redraw();
}

// ---- images ----

async function open(number, place) {
  if (number === page.image && !place) return;
  if (number !== page.image) {
    page.image = number;
    page.version = 0;
    page.revision = 0;
    page.marker = null;
    const { width, height } = page.images[number];
    page.picture = new Pictures(width, height);
    page.bitmap = null;
    sessionStorage.setItem("image", String(number));
    showImages();
    view.fit(width, height);
    const picture = new Image();
    picture.onload = () => { if (page.image === number) { page.bitmap = picture; view.redraw(); } };
    picture.src = address(`/api/images/${number}/pixels`);
    await loadScribbles();
    watch();
  }
  if (place) {
    page.marker = [place.x, place.y];
    view.centre(place.x, place.y);
  }
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
  if (planes.length) {
    page.picture.put(header.box, planes);
    page.version = header.version;
    view.redraw();
    requestAnimationFrame(() => {
      document.documentElement.dataset.version = header.version;
      document.documentElement.dataset.seen = String(performance.now());
    });
  }
  showStatus(header.status);
  if (header.revision !== page.revision && !page.stroke && !queue.waiting.length) await loadScribbles();
  showExport(header.export);
  if (header.label_changes !== page.named) await refresh();
}

async function refresh() {
  const state = await getJSON("/api/state");
  take(state);
}

function take(state) {
  page.labels = state.labels;
  page.named = state.label_changes;
  page.images = state.images;
  document.title = `${state.folder.split("/").pop()} – backfield label`;
  page.picture?.recolour();
  showLabels();
  showImages();
  showStatus(state.status);
  showExport(state.export);
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

function element(kind, properties = {}, ...children) {
  const made = Object.assign(document.createElement(kind), properties);
  made.append(...children);
  return made;
}

function showImages() {
  const list = $("images");
  if (list.children.length !== page.images.length) {
    list.replaceChildren(...page.images.map((image, number) => {
      const state = element("span", { className: "state" }, element("span", { className: "dot" }), element("span", { className: "share" }));
      const picture = element("img", { src: address(`/api/images/${number}/thumbnail`), alt: "", loading: "lazy" });
      return element("button", { onclick: () => open(number), title: image.name }, picture, element("span", { className: "name", textContent: image.name }), state);
    }));
  }
  page.images.forEach((image, number) => {
    const button = list.children[number];
    button.setAttribute("aria-current", String(number === page.image));
    const share = image.painted ? `${(100 * image.painted).toFixed(image.painted < 0.01 ? 2 : 1)} % painted` : "not painted";
    button.querySelector(".share").textContent = share;
    button.querySelector(".state").classList.toggle("painted", image.painted > 0);
  });
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
    const keep = () => { sessionStorage.setItem(`layer-${layer.key}`, JSON.stringify({ on: layer.on, opacity: layer.opacity })); view.redraw(); };
    const id = `layer-${layer.key}`;
    const box = element("input", { type: "checkbox", id, checked: layer.on, onchange: (e) => { layer.on = e.target.checked; keep(); } });
    const slider = element("input", { type: "range", min: 0, max: 100, value: 100 * layer.opacity, oninput: (e) => { layer.opacity = e.target.value / 100; keep(); } });
    slider.setAttribute("aria-label", `Opacity of ${layer.name}`);
    return element("li", {}, box, element("label", { htmlFor: id, textContent: layer.name }), slider);
  }));
}

const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

function showStatus(status) {
  if (!status) return;
  const rows = [["Scribbles", String(status.scribbles)]];
  if (status.error !== null) rows.push(["Error, held out", status.spread === null ? percent(status.error) : `${percent(status.error)} ± ${percent(status.spread)}`]);
  if (status.changed !== null) rows.push(["Last change", percent(status.changed)]);
  if (status.seconds !== null) rows.push(["Last update", `${Math.round(1000 * status.seconds)} ms`]);
  $("status").replaceChildren(...rows.flatMap(([term, text]) => [element("dt", { textContent: term }), element("dd", { textContent: text })]));
  $("advice").textContent = status.advice;
  $("thinking").hidden = !status.busy;
  $("thinking").textContent = status.busy || "";
  document.documentElement.dataset.busy = status.busy ? "yes" : "";
  for (const [number, painted] of Object.entries(status.painted || {})) if (page.images[number]) page.images[number].painted = painted;
  showImages();
}

function showExport(state) {
  if (state.step < page.step) return; // an older answer that came late
  page.step = state.step;
  $("export-box").hidden = state.stage === "idle";
  $("export-bar").value = state.total ? state.done / state.total : 0;
  $("export-text").textContent = state.text;
  $("export-lines").textContent = state.lines;
  $("export-lines").hidden = !state.lines;
  $("export").disabled = state.stage === "running";
  document.documentElement.dataset.export = state.stage;
}

async function startExport() {
  try {
    showExport(await (await postJSON("/api/export", {})).json());
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
  const kept = Number(sessionStorage.getItem("image") || 0);
  await open(kept < page.images.length ? kept : 0);
  document.documentElement.dataset.ready = "yes";
} catch (error) { say(error.message, true); }
