"""``backfield label`` under a person's hand: time from a stroke to the picture, memory, and kill -9.

    python -m backfield_benchmarks.label [--strokes 30] [--sizes 512 2048] [--kills 0]

Starts the real server on a folder of generated images (two labels, 30 features), warms it up with strokes of both labels,
then sends strokes over HTTP as the page does and waits for the layers. Prints, as JSON lines: median and 90 % quantile of
the milliseconds until the part that is seen (1024 x 768 pixels, or all of a smaller image) and until the whole image show
the stroke, and the server's resident memory. With ``--kills N`` the server is killed N times at random moments of a painting
run, and the maps on disk are compared with the strokes that it had acknowledged.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from backfield.labelling.strokes import HIDDEN, Stroke

VIEW = (1024, 768)


def picture(side: int, seed: int = 0) -> np.ndarray:
    """Smooth blobs of two textures."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(seed)
    blobs = gaussian_filter(rng.normal(size=(side, side)), side / 24) > 0
    base = np.where(blobs[..., None], [150, 110, 70], [90, 120, 110])
    return np.clip(base + rng.normal(0, 30, (side, side, 3)), 0, 255).astype(np.uint8)


class Server:
    """``backfield label`` as a separate process."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "backfield", "label", str(folder), "--no-browser", "--labels", "a,b"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://127.0.0.1:(\d+)/\?token=(\S+)", line)
        assert found, f"the server said {line!r}"
        self.port, self.token = int(found[1]), found[2]
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def ask(self, method: str, path: str, content: Any = None) -> tuple[int, bytes]:
        body = None if content is None else json.dumps(content).encode()
        self.connection.request(method, path, body, {"X-Token": self.token})
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def planes(self, method: str, path: str, content: Any = None) -> dict[str, Any]:
        status, body = self.ask(method, path, content)
        assert status == 200, body[:200]
        (length,) = struct.unpack_from("<I", body)
        return json.loads(body[4 : 4 + length])

    def memory(self) -> float:
        """Resident megabytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]

    def peak(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]

    def processor(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)


def random_stroke(rng: random.Random, side: int, label: int, view: list[int] | None) -> dict[str, Any]:
    left, top, width, height = view or [0, 0, side, side]
    x, y = left + rng.uniform(0.1, 0.9) * width, top + rng.uniform(0.1, 0.9) * height
    points = [[x + 4 * k, y + rng.uniform(-2, 2)] for k in range(8)]
    return {"kind": "brush", "label": label, "size": 9, "points": points, "view": view}


def latency(side: int, strokes: int, seed: int = 0) -> dict[str, Any]:
    """Send strokes to an image of a size and wait for the pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pixels = picture(side, seed)
        Image.fromarray(pixels).save(folder / "image.png")
        server, rng = Server(folder), random.Random(seed)
        try:
            width, height = min(VIEW[0], side), min(VIEW[1], side)
            view = [(side - width) // 2, (side - height) // 2, width, height]
            version, times = 0, []
            for number in range(strokes + 6):
                stroke = random_stroke(rng, side, number % 2, view)
                start, before = time.perf_counter(), server.processor()
                mine = server.planes("POST", "/api/images/0/strokes", stroke)["strokes"]
                saved, seen = time.perf_counter() - start, None
                while True:
                    header = server.planes(
                        "GET", f"/api/images/0/layers?after={version}&seen={number + 1}&view={_text(view)}"
                    )
                    version = header["version"]
                    if header["strokes"] >= mine and header["seen"] and seen is None:
                        seen = time.perf_counter() - start
                    if header["strokes"] >= mine and header["whole"]:
                        break
                if number >= 6:  # the first ones compile and read features
                    times.append((saved, seen, time.perf_counter() - start, server.processor() - before))
                time.sleep(0.3)
            found = 1e3 * np.array(times)
            medians, high = np.median(found, axis=0), np.quantile(found, 0.9, axis=0)
            names = ("saved_ms", "seen_ms", "whole_ms", "processor_ms")
            return {
                "case": f"{side} x {side}",
                "strokes": strokes,
                "view": f"{width} x {height}",
                **{name: round(float(value), 1) for name, value in zip(names, medians, strict=True)},
                **{f"{name[:-3]}_90_ms": round(float(value), 1) for name, value in zip(names, high, strict=True)},
                "memory_mb": round(server.memory()),
                "peak_mb": round(server.peak()),
            }
        finally:
            server.stop()


def _text(view: list[int]) -> str:
    return ",".join(str(v) for v in view)


def kills(count: int, side: int = 96, seed: int = 0) -> dict[str, Any]:
    """Kill a server while strokes come; return how many acknowledged strokes were lost, and files that are damaged."""
    rng, lost, damaged, acknowledged = random.Random(seed), 0, 0, 0
    for _ in range(count):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for k in range(2):
                Image.fromarray(picture(side, k)).save(folder / f"image-{k}.png")
            server = Server(folder)
            sent, done = _paint_until_killed(server, rng, side)
            acknowledged += done
            for k in range(2):
                try:
                    found = np.asarray(Image.open(folder / "masks" / f"image-{k}.png"))
                except Exception:
                    damaged += 1
                    continue
                # The stroke that was on its way may be there or not.
                lost += not any((found == _replayed(sent[:n], k, side)).all() for n in (done, done + 1))
    return {"case": "kill -9", "kills": count, "acknowledged": acknowledged, "maps_lost": lost, "files_damaged": damaged}


def _paint_until_killed(server: Server, rng: random.Random, side: int) -> tuple[list[tuple[int, dict[str, Any]]], int]:
    import threading

    timer = threading.Timer(rng.uniform(0.02, 0.6), lambda: server.process.send_signal(signal.SIGKILL))
    timer.start()
    sent: list[tuple[int, dict[str, Any]]] = []
    done = 0
    try:
        while True:
            sent.append((len(sent) % 2, random_stroke(rng, side, rng.randrange(2), None)))
            status, _ = server.ask("POST", f"/api/images/{sent[-1][0]}/strokes", sent[-1][1])
            assert status == 200
            done += 1
    except (OSError, http.client.HTTPException):
        timer.join()
        server.process.wait(30)
    return sent, done


def _replayed(strokes: list[tuple[int, dict[str, Any]]], image: int, side: int) -> np.ndarray:
    labels = np.full((side, side), HIDDEN, np.uint8)
    for number, content in strokes:
        if number == image:
            box, after = Stroke.parse(content, 2).change(labels)
            labels[box.slices] = after
    return labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--strokes", type=int, default=30)
    parser.add_argument("--sizes", type=int, nargs="*", default=[512, 2048])
    parser.add_argument("--kills", type=int, default=0)
    options = parser.parse_args()
    for side in options.sizes:
        print(json.dumps(latency(side, options.strokes)), flush=True)
    if options.kills:
        print(json.dumps(kills(options.kills)), flush=True)


if __name__ == "__main__":
    main()
