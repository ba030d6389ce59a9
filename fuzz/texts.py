"""Models in texts: UAI, libDAI, BIF and XMLBIF, evidence, templates and columns, through the command line."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fuzz.models import Case, command
from fuzz.mutations import mutate_bytes, mutate_tokens

UAI = "MARKOV\n3\n2 3 2\n2\n2 0 1\n3 0 1 2\n6\n1 2 3 .5 .25 1\n12\n1 1 1 1 2 2 2 2 3 3 3 3\n"
LIBDAI = "2\n\n2\n0 1\n2 2\n4\n0 1\n1 2\n2 .5\n3 1\n\n1\n1\n2\n2\n0 .3\n1 .7\n"
BIF = """network n { property author me; }
variable rain { type discrete [ 2 ] { no, yes }; }
variable "s p" { type discrete [ 2 ] { off, on }; }
variable wet { type discrete [ 3 ] { dry, damp, soaked }; }
probability ( rain ) { table 0.8, 0.2; } // prior
probability ( "s p" | rain ) { (no) 0.6, 0.4; (yes) 0.99, 0.01; }
probability ( wet | rain, "s p" ) { default 0.5, 0.3, 0.2; (yes, on) 0.0, 0.1, 0.9; }
"""
XMLBIF = """<?xml version="1.0"?>
<BIF VERSION="0.3"><NETWORK><NAME>n</NAME>
<VARIABLE TYPE="nature"><NAME>a</NAME><OUTCOME>x</OUTCOME><OUTCOME>y</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>b</NAME><OUTCOME>x</OUTCOME><OUTCOME>y</OUTCOME></VARIABLE>
<DEFINITION><FOR>a</FOR><TABLE>0.2 0.8</TABLE></DEFINITION>
<DEFINITION><FOR>b</FOR><GIVEN>a</GIVEN><TABLE>0.2 0.8 .5 .5</TABLE></DEFINITION>
</NETWORK></BIF>
"""
EVIDENCE = "2 0 1 2 0\n"
COLUMNS = "the D\ndog N\nruns V\n\na D\ncat N\nsleeps V\n"
TEMPLATE = "U00:%x[0,0]\nU01:%x[-1,0]/%x[0,0]\nB\n"


@dataclass
class ModelTexts:
    """Models and evidence with mutated characters or words, plain or packed, through ``backfield infer``."""

    name: str = "model_texts"

    def prepare(self, folder: Path) -> None:
        (folder / "m.uai").write_text(UAI)
        command("infer", folder / "m.uai", "--inference", "exact", "--json")
        self.sources = {"m.uai": UAI, "m.fg": LIBDAI, "m.bif": BIF, "m.xmlbif": XMLBIF, "m.uai.evid": EVIDENCE}

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        name = str(rng.choice(list(self.sources)))
        data = self.sources[name].encode()
        data = mutate_bytes(rng, data) if rng.random() < 0.5 else mutate_tokens(rng, data)
        if rng.random() < 0.1:
            name, data = f"{name}.gz", mutate_bytes(rng, gzip.compress(data))
        (folder / name).write_bytes(data)
        line = ["infer", folder / name, "--inference", str(rng.choice(["exact", "tree_reweighted(n_iter=3)"])), "--json"]
        if ".evid" in name:
            (folder / "whole.uai").write_text(UAI)
            line[1:2] = [folder / "whole.uai", "--evidence", folder / name]
        return lambda: command(*line)


@dataclass
class Columns:
    """Token files and templates with mutated characters or words, through ``backfield fit``."""

    name: str = "columns"

    def prepare(self, folder: Path) -> None:
        self._write(folder, COLUMNS.encode(), TEMPLATE.encode())
        command(*self._line(folder))

    def _write(self, folder: Path, columns: bytes, template: bytes) -> None:
        (folder / "data.txt").write_bytes(columns)
        (folder / "template").write_bytes(template)

    def _line(self, folder: Path) -> list[object]:
        return ["fit", folder / "data.txt", "--template", folder / "template", "--learner", "lbfgs(max_iter=2)", "-o",
                folder / "m.bf", "--quiet"]  # fmt: skip

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        texts = [COLUMNS.encode(), TEMPLATE.encode()]
        victim = int(rng.integers(2))
        texts[victim] = (mutate_bytes if rng.random() < 0.5 else mutate_tokens)(rng, texts[victim])
        self._write(folder, *texts)
        return lambda: command(*self._line(folder))
