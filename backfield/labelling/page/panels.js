// How far things are: the numbers beside the canvas, and the export.
import { $, element } from "./dom.js";

const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

export function showStatus(status) {
  const rows = [["Scribbles", String(status.scribbles)]];
  if (status.error !== null) rows.push(["Error, held out", status.spread === null ? percent(status.error) : `${percent(status.error)} ± ${percent(status.spread)}`]);
  if (status.changed !== null) rows.push(["Last change", percent(status.changed)]);
  if (status.seconds !== null) rows.push(["Last update", `${Math.round(1000 * status.seconds)} ms`]);
  $("status").replaceChildren(...rows.flatMap(([term, text]) => [element("dt", { textContent: term }), element("dd", { textContent: text })]));
  $("advice").textContent = status.advice;
  $("thinking").hidden = !status.busy;
  $("thinking").textContent = status.busy || "";
  document.documentElement.dataset.busy = status.busy ? "yes" : "";
}

export function showExport(state) {
  $("export-box").hidden = state.stage === "idle";
  $("export-bar").value = state.total ? state.done / state.total : 0;
  $("export-text").textContent = state.text;
  $("export-lines").textContent = state.lines;
  $("export-lines").hidden = !state.lines;
  $("export").disabled = state.stage === "running";
  document.documentElement.dataset.export = state.stage;
}
