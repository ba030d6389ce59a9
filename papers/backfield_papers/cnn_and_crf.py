"""A small network in front of a field on the horses: alone, with a field fitted afterwards, and trained together.

A U-Net of three levels (16, 32, 48 channels) sees colours and the place in the image and gives scores (H, W, 2). Tables of
edges are linear in 11 features of the colour difference, one set of weights per direction. Three models, at the same
number of epochs, from the same network after the first half of them:

    network         the second half goes on with the logistic loss of the scores
    field after     a field is fitted on the scores of the finished network, which stays as it is
    together        the second half trains network and field through the sweeps of inference

# Differs from the papers: none of them has this experiment; "paper" is empty.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from backfield.datasets import horses
from backfield.features.edges import EdgeFeatures
from backfield_papers._base import Context, Outcome, experiment, figure, need_data, need_torch, save

INFERENCE, LOSS, SEED = "tree_reweighted(n_iter=5)", "univariate_logistic", 0
RATE, TABLE_RATE, BATCH = 3e-3, 2e-2, 4
CHANNELS = (16, 32, 48)
#: Of the training images, so many are held out where settings are chosen.
HELD_OUT = 40


@experiment("cnn-and-crf", "A network alone, with a field fitted afterwards, and trained together with it: horses")
def run(context: Context) -> Outcome:
    """Train the three models and count wrong pixels of the test images."""
    return measure(context, epochs=4 if context.quick else 16, held_out=False)


def measure(context: Context, epochs: int, held_out: bool) -> Outcome:
    """Train on the training images; test on the test images, or on training images that were held out."""
    torch = need_torch()
    from backfield_papers._unet import UNet, seeded

    torch.set_num_threads(context.n_jobs)
    data = horses.load(need_data(context, "weizmann_horses"))
    train, test = (data.train[:-HELD_OUT], data.train[-HELD_OUT:]) if held_out else (data.train, data.test)
    if context.quick:
        train, test = train[:12], test[:6]
    edges = EdgeFeatures(("constant", "difference")).fit([data.images[k] for k in train])
    pictures = {int(k): _Picture(torch, data.images[k], data.masks[k], edges) for k in [*train, *test]}
    fitting, testing = [pictures[int(k)] for k in train], [pictures[int(k)] for k in test]
    start = time.process_time()
    steps = epochs * math.ceil(len(fitting) / BATCH)
    half = _Trainer(torch, seeded(UNet, SEED, 5, 2, CHANNELS), steps)
    half.epochs(fitting, range(epochs // 2), context, "network")
    seconds = {"first half": time.process_time() - start}
    found: dict[str, Any] = {}
    for name in ("network", "field after", "together"):
        start = time.process_time()
        if name == "field after":
            trainer = found["network"].fixed(steps // 2)
            trainer.epochs(fitting, range(epochs // 2), context, name)
        else:
            trainer = half.copy(with_field=name == "together")
            trainer.epochs(fitting, range(epochs // 2, epochs), context, name)
        seconds[name] = time.process_time() - start
        found[name] = trainer
    rows = []
    for name, trainer in found.items():
        total = seconds["first half"] + seconds[name] + (seconds["network"] if name == "field after" else 0)
        train_error, test_error = trainer.error(fitting), trainer.error(testing)
        for what, value in (
            ("train error", train_error),
            ("test error", test_error),
            ("processor seconds of training", total),
        ):
            rows.append({"model": name, "what": what, "paper": None, "ours": round(value, 5)})
    settings = {"epochs": epochs, "inference": INFERENCE, "loss": LOSS, "optimizer": "Adam, one cycle of the step",
                "step": RATE, "step_of_tables": TABLE_RATE, "batch": BATCH, "seed": SEED, "threads": context.n_jobs,
                "train": len(fitting), "test": len(testing), "held_out": held_out,
                "parameters": sum(p.numel() for p in half.network.parameters())}  # fmt: skip
    shown = testing[: 3 if context.quick else 6]
    return Outcome(settings, rows, {"cnn-and-crf.png": lambda path: _draw(path, shown, found)})


class _Picture:
    """One image as tensors: (1, 5, H, W) inputs, edge features (F, 11) of both directions, labels (H, W)."""

    def __init__(self, torch: Any, image: np.ndarray, mask: np.ndarray, edges: EdgeFeatures) -> None:
        height, width = mask.shape
        self.image, self.shape = image, mask.shape
        colours = image.astype(np.float32) / 127.5 - 1
        place = np.stack(np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij"), axis=2)
        self.inputs = torch.from_numpy(np.concatenate([colours, place.astype(np.float32)], axis=2).transpose(2, 0, 1)[None])
        across, down = edges.transform([image])[0]
        self.across, self.down = (torch.from_numpy(part.reshape(-1, part.shape[2])) for part in (across, down))
        self.labels = torch.from_numpy(mask.astype(np.int64))

    def mirrored(self) -> _Picture:
        """Return the image seen from the other side."""
        other = object.__new__(_Picture)
        other.shape, other.image = self.shape, self.image[:, ::-1]
        other.inputs = self.inputs.flip(3)
        other.inputs[:, 4] *= -1  # left is still -1
        height, width = self.shape
        other.across = self.across.reshape(height, width - 1, -1).flip(1).reshape(self.across.shape)
        other.down = self.down.reshape(height - 1, width, -1).flip(1).reshape(self.down.shape)
        other.labels = self.labels.flip(1)
        return other


class _Trainer:
    """A network, the tables of a field or none, and the optimiser of both."""

    def __init__(self, torch: Any, network: Any, steps: int, tables: Any = None, frozen: bool = False) -> None:
        from backfield.bridges.torch import CRFLayer

        self.torch, self.network, self.steps, self.tables, self.frozen = torch, network, steps, tables, frozen
        self.layer = CRFLayer(None, 2, inference=INFERENCE)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=RATE)
        self.step = 0
        if tables is not None:
            self.optimizer.add_param_group({"params": [tables], "lr": TABLE_RATE})
        self._rates = [group["lr"] for group in self.optimizer.param_groups]

    def copy(self, with_field: bool) -> _Trainer:
        """Return a trainer that goes on from here, with the moments of Adam."""
        import copy

        other = _Trainer(self.torch, copy.deepcopy(self.network), self.steps)
        other.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        other.step = self.step
        if with_field:
            other.tables = self.torch.zeros(2, 11, 4, requires_grad=True)
            other.optimizer.add_param_group({"params": [other.tables], "lr": TABLE_RATE})
            other._rates.append(TABLE_RATE)
        return other

    def fixed(self, steps: int) -> _Trainer:
        """Return a trainer of a field on this network, of which one affine map of the scores is left to learn."""
        network = self.torch.nn.Sequential(self.network.requires_grad_(False), self.torch.nn.Conv2d(2, 2, 1))
        with self.torch.no_grad():
            network[1].weight.copy_(self.torch.eye(2)[:, :, None, None])
            network[1].bias.zero_()
        tables = self.torch.zeros(2, 11, 4, requires_grad=True)
        return _Trainer(self.torch, network, steps, tables, frozen=True)

    def potentials(self, picture: _Picture) -> tuple[Any, Any]:
        """Return scores (H, W, 2) and tables (F, 2, 2), which are None without a field."""
        unary = self.network(picture.inputs)[0].permute(1, 2, 0)
        if self.tables is None:
            return unary, None
        both = [picture.across @ self.tables[0], picture.down @ self.tables[1]]
        return unary, self.torch.cat(both).reshape(-1, 2, 2)

    def loss(self, picture: _Picture) -> Any:
        """Return the mean loss per pixel."""
        unary, factors = self.potentials(picture)
        if factors is None:
            return self.torch.nn.functional.cross_entropy(unary.reshape(-1, 2), picture.labels.reshape(-1))
        return self.layer.loss(unary, factors, picture.labels, loss=LOSS) / picture.labels.numel()

    def epochs(self, pictures: list[_Picture], numbers: range, context: Context, name: str) -> None:
        """Take the steps of some epochs; order and mirroring are functions of the seed and the epoch."""
        for epoch in numbers:
            rng = np.random.default_rng([SEED, epoch])
            order, turned = rng.permutation(len(pictures)), rng.random(len(pictures)) < 0.5
            total = 0.0
            for low in range(0, len(order), BATCH):
                chosen = order[low : low + BATCH]
                for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
                    group["lr"] = rate * _cycle(self.step / self.steps)
                self.optimizer.zero_grad()
                for k in chosen:
                    value = self.loss(pictures[k].mirrored() if turned[k] else pictures[k]) / len(chosen)
                    value.backward()
                    total += float(value.detach())
                self.optimizer.step()
                self.step += 1
            context.progress(f"{name}, epoch {epoch + 1}: loss {total / math.ceil(len(order) / BATCH):.4f}")

    def predict(self, picture: _Picture) -> np.ndarray:
        """Return labels (H, W)."""
        with self.torch.no_grad():
            unary, factors = self.potentials(picture)
            found = unary.argmax(2) if factors is None else self.layer.decode(unary.contiguous(), factors)
        return found.numpy()

    def error(self, pictures: list[_Picture]) -> float:
        """Return the share of wrong pixels."""
        wrong = sum(int((self.predict(picture) != picture.labels.numpy()).sum()) for picture in pictures)
        return wrong / sum(picture.labels.numel() for picture in pictures)


def _cycle(share: float) -> float:
    """Return the step length: up for a tenth of the time, then down along a cosine."""
    return share / 0.1 + 0.01 if share < 0.1 else 0.5 * (1 + math.cos(math.pi * (share - 0.1) / 0.9)) + 1e-3


def _draw(path: Path, pictures: list[_Picture], found: dict[str, _Trainer]) -> None:
    made, axes = figure(len(pictures), 2 + len(found), width=1.7, height=1.4)
    for number, (row, picture) in enumerate(zip(axes, pictures, strict=True)):
        shown = {"image": picture.image, "truth": picture.labels.numpy()}
        shown |= {name: trainer.predict(picture) for name, trainer in found.items()}
        for axis, (name, values) in zip(row, shown.items(), strict=True):
            axis.imshow(values, cmap="gray", interpolation="nearest")
            axis.set_axis_off()
            if number == 0:
                axis.set_title(name, fontsize=9)
    save(made, path)
