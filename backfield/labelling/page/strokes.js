// What strokes change in a map of labels: the same rule as strokes.py; paint shows before the server answers.
export const HIDDEN = 255;

// Label all pixels whose centre is at most size / 2 from the segment a-b; returns the box that may have changed.
export function paintSegment(map, width, height, a, b, size, value) {
  const r = size / 2;
  const x0 = Math.max(0, Math.floor(Math.min(a[0], b[0]) - r)), x1 = Math.min(width, Math.ceil(Math.max(a[0], b[0]) + r) + 1);
  const y0 = Math.max(0, Math.floor(Math.min(a[1], b[1]) - r)), y1 = Math.min(height, Math.ceil(Math.max(a[1], b[1]) + r) + 1);
  const dx = b[0] - a[0], dy = b[1] - a[1], length = dx * dx + dy * dy;
  for (let y = y0; y < y1; y++) {
    for (let x = x0; x < x1; x++) {
      const px = x + 0.5 - a[0], py = y + 0.5 - a[1];
      const t = length ? Math.min(1, Math.max(0, (px * dx + py * dy) / length)) : 0;
      const ex = px - t * dx, ey = py - t * dy;
      if (ex * ex + ey * ey <= r * r) map[y * width + x] = value;
    }
  }
  return [x0, y0, Math.max(0, x1 - x0), Math.max(0, y1 - y0)];
}

// Put a box of bytes into a map.
export function putBox(map, width, box, bytes) {
  const [x, y, w, h] = box;
  for (let row = 0; row < h; row++) map.set(bytes.subarray(row * w, (row + 1) * w), (y + row) * width + x);
}
