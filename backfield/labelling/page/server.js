// Talking to the server: the token of the address, answers with planes, strokes that are sent in order and not lost.
const token = new URLSearchParams(location.search).get("token") || "";

export class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

export function address(path) {
  return `${path}${path.includes("?") ? "&" : "?"}token=${encodeURIComponent(token)}`;
}

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { "X-Token": token, ...(options.headers || {}) } });
  if (!answer.ok) throw new Refused(answer.status, await answer.text());
  return answer;
}

export async function getJSON(path) { return (await ask(path)).json(); }

export async function postJSON(path, body) {
  return ask(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
}

// Header and planes of an answer; null where there is none.
export async function readPlanes(answer) {
  if (answer.status === 204) return null;
  const buffer = await answer.arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const size = header.box[2] * header.box[3];
  const planes = [];
  for (let k = 0; k < header.planes; k++) planes.push(new Uint8Array(buffer, 4 + length + k * size, size));
  return { header, planes };
}

export async function getBitmap(path) { return createImageBitmap(await (await ask(path)).blob()); }

export async function getPlanes(path, signal) { return readPlanes(await ask(path, { signal })); }

// A queue: one request after the other; one that the network lost is sent again until it arrives.
export class Queue {
  constructor(onstate) { this.waiting = []; this.running = false; this.onstate = onstate; }

  push(path, body, done) {
    this.waiting.push({ path, body, done });
    this.onstate(this.waiting.length, null);
    if (!this.running) this.run();
  }

  async run() {
    this.running = true;
    while (this.waiting.length) {
      const { path, body, done } = this.waiting[0];
      try {
        const answer = await readPlanes(await postJSON(path, typeof body === "function" ? body() : body));
        this.waiting.shift();
        this.onstate(this.waiting.length, null);
        done(answer);
      } catch (error) {
        if (error instanceof Refused && error.status < 500) {
          this.waiting.shift();
          this.onstate(this.waiting.length, error.message);
          done(undefined);
        } else {
          this.onstate(this.waiting.length, error instanceof Refused ? error.message : "The server does not answer; strokes are kept and sent again.");
          await new Promise((resume) => setTimeout(resume, 1000));
        }
      }
    }
    this.running = false;
  }
}
