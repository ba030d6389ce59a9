"""Pages that nobody writes: results, speed and the gallery from committed JSON and pictures, the API from docstrings.

``python docs/hooks.py`` writes the pages of results into docs/, where they are committed, so links work on a code host as
well as on the site; a test holds them against the JSON. The pages of the API are made while mkdocs builds.
Two comments are replaced in written pages: ``<!-- source: backfield.losses.base.Loss -->`` by the source of that object as
it is now, and ``<!-- results: NAME -->`` by the table of ``docs/results/NAME.json``. Formulas, ``$...$`` and ``$$...$$``,
become MathML, which browsers draw without a script.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

DOCS = Path(__file__).parent
RESULTS = DOCS / "results"
BENCHMARKS = DOCS.parent / "benchmarks" / "backfield_benchmarks"
#: Rows of a table that are shown at once; more are folded away.
MANY = 120
#: Figures of papers that are drawn by the experiment of a table.
DRAWN_BY = {
    "d13-fig4": "d13-table1", "d13-fig5": "d13-table2", "d13-fig6": "d13-table3", "k05-fig2": "k05-table1",
    "k05-fig3": "k05-table1", "l13-fig3": "l13-table1",
}  # fmt: skip
#: What the gallery shows first, and what is to be seen there; all other pictures follow.
GALLERY = {
    "l13-table1": "Denoising and horses: the input, the truth, and what each pair of function classes makes of it.",
    "d13-table1": "Marginals of noisy binary images, by loss and inference.",
    "d13-table2": "Horses: marginals by loss and inference.",
    "cnn-and-crf": "Horses: a network alone, with a field fitted to its scores, and trained together with the field.",
    "d13-table3": "Outdoor scenes of eight classes.",
    "ocr-words": "Letters, the best guess for each and its probability in percent; wrong ones are red.",
    "calibration": "A model is reliable where its curve is on the diagonal; dots are as large as their share of the pixels.",
    "l13-fig1": "The energies that were learned, as functions of their input: three function classes.",
    "k05-fig1": "Some gradients are those of no function: ascent along them ends in a cycle.",
    "s11-fig1": "The loss along a line between two sets of weights, for several losses.",
}
#: Settings that say how a result came about, in this order; all others are folded away.
SHOWN = ("quick", "commit", "machine")
#: The papers, by the first letters of their experiments; all other experiments are our own.
PAPERS = {
    "d13-": "Domke 2013: learning through truncated inference",
    "l13-": "Domke 2013: non-linear energies",
    "s18-": "Shpakova, Bach and Osokin 2018: marginal perturb-and-MAP",
    "k05-": "Kumar, August and Hebert 2005: approximate parameter learning",
    "s11-": "Stoyanov, Ropson and Eisner 2011: risk of the whole pipeline",
    "": "Questions of our own",
}
FOUND = (
    "Each claim of the papers, a verdict, and our figure with the paper's in brackets. Figures are read from the committed "
    "results when this page is built. *holds* means that the order of the methods and the size of the differences are the "
    "paper's; *holds in part* and *does not hold here* say what is different. Pages of single results list every row and "
    "every deviation."
)
#: What the page of speed says before its tables.
SPEED = """What a sweep of inference and its gradient cost, one core, in processor time; every row is the best of several
runs after compiling. **ns** is nanoseconds per directed message (per variable for mean field). **C_ns** is a hand-written C
kernel for just that model, compiled with `-O3 -march=native`, in the same run, and **ratio** is ours over its time;
**bar** is the largest ratio we allow. Rows without C have a bar against another row of the run.

| model | |
|---|---|
| w1 | a binary grid of 100 x 100 pixels |
| w2 | a grid of 60 x 80 pixels with 8 labels (case *labels*: 2 to 16) |
| w4 | a random graph of 200 binary variables and 800 edges |

All potentials are drawn from N(0, 1). *family* names the kernels: *lattice* is for binary grids, *pairwise* for any pairwise
graph of one label count, *general* for any factors, *log* for anything, in the log domain. *over_forward* is the time of a
gradient divided by that of inference alone. `backfield bench --quick` runs in a minute; `--reference DIR` adds the C
kernels, `--against TAG` an older version of this library.
"""
STUDIES = (
    "Measurements beside other libraries and of the defaults. Each table is printed by the command above it, which saves "
    "its cells in `docs/results/studies/`; a study that is started again goes on where it stopped."
)
#: The order of the page of the API: title -> names; all others come last.
API = {
    "Learning": ("GridCRF", "ChainCRF", "GraphCRF", "GridSample", "Sample", "Classifier", "Network", "load"),
    "Models and inference": ("Graph", "Potentials", "batch", "infer", "find_map"),
    "Losses and gradients": ("value_and_gradient", "hessian_vector", "inference_gradient"),
    "Errors": ("InputError", "ConvergenceWarning"),
}
ROOMS = {
    "inference": "theta -> marginals and log Z",
    "losses": "marginals, labels -> value",
    "objectives": "theta, labels -> value; with a gradient of their own",
    "gradients": "from the marginals' adjoint to theta's",
    "learners": "what moves the weights",
    "energies": "features, weights -> theta",
    "oracles": "function classes that are fitted term by term",
    "decoders": "marginals -> prediction",
    "map_solvers": "theta -> labels",
    "structures": "data -> graphs with features, and labels back",
    "kernel_specs": "which features a kernel of a dense field looks at",
}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the API, and tutorials that mkdocs.yml does not list to the end of their menu."""
    for path, text in api_pages().items():
        files.append(File.generated(config, path, content=text))
    menu = next(entry["Tutorials"] for entry in config.nav if "Tutorials" in entry)
    listed = {path for entry in menu for path in entry.values()}
    menu += [path for path in sorted(files.src_uris) if path.startswith("tutorials/") and path not in listed]
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in sources and tables."""
    return filled(markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Draw formulas."""
    return re.sub(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', formula, html, flags=re.DOTALL)


def formula(match: re.Match[str]) -> str:
    """Return a formula of LaTeX as MathML, alone on its line or within a sentence."""
    from latex2mathml.converter import convert

    drawn = convert(unescape(match[2]).strip(), display="block" if match[1] == "div" else "inline")
    return f'<div class="formula">{drawn}</div>' if match[1] == "div" else drawn


def api_pages() -> dict[str, str]:
    """Return path -> text of the pages made from docstrings."""
    return {"api/index.md": api_page(), "api/parts.md": parts_page(), "api/torch.md": torch_page()}


def write() -> None:
    """Write the pages of results, and remove those of results that are gone."""
    made = pages()
    for path, text in made.items():
        (DOCS / path).write_text(text)
    for path in RESULTS.glob("*.md"):
        if f"results/{path.name}" not in made:
            path.unlink()


def pages() -> dict[str, str]:
    """Return path -> text of the pages made from results."""
    names = sorted(path.stem for path in RESULTS.glob("*.json"))
    made = {"gallery.md": gallery(), "found.md": found_page(), "studies.md": studies_page()}
    made["results/index.md"] = results_index([name for name in names if name != "bench"])
    for name in names:
        made["speed.md" if name == "bench" else f"results/{name}.md"] = result_page(name)
    return made


def filled(markdown: str) -> str:
    """Replace the two kinds of comments."""
    markdown = re.sub(r"<!-- source: ([\w.]+) -->", lambda match: f"```py\n{source(match[1])}```", markdown)
    return re.sub(r"<!-- results: ([\w-]+) -->", lambda match: table(read(match[1])["rows"]), markdown)


def source(name: str) -> str:
    """Return the source of ``package.module.Name`` as it is now."""
    module, _, attribute = name.rpartition(".")
    return inspect.getsource(getattr(importlib.import_module(module), attribute))


# ---- results ----


def read(name: str) -> dict[str, Any]:
    """Return a committed result."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def title(name: str) -> str:
    """Return what a result says that it is."""
    return "Speed" if name == "bench" else str(read(name)["settings"].get("title", name))


def results_index(names: list[str]) -> str:
    """Return the page that lists all results."""
    intro = (
        "Every number here was printed by `backfield reproduce NAME --out docs/results` and is read from the committed JSON "
        "when these pages are built. Where a paper prints a figure, it stands beside ours. [What we found](../found.md) "
        "puts the claims of the papers beside our figures. Seconds are processor time of the cells or, where it says *wall*,"
        " those of a clock on a machine that did other work, too; some of these leave out cells of an earlier, stopped run."
    )
    lines = ["# Results", "", intro, "", "| | experiment | rows | seconds |", "|---|---|---|---|"]
    for name in names:
        found = read(name)
        note = " (a quick run)" if found["settings"].get("quick") else ""
        took = number(found["seconds"]) + ("" if "clock" in found["settings"] else " *wall*")
        lines.append(f"| [{name}]({name}.md) | {title(name)}{note} | {len(found['rows'])} | {took} |")
    lines += ["", "## Not run yet", ""]
    lines += [f"- {name}: {experiment(name).title}" for name in experiments() if name not in names]
    lines += [f"- {name}: {len(left_out(name))} of its cells" for name in names if left_out(name)]
    return "\n".join(lines) + "\n"


def left_out(name: str) -> list[str]:
    """Return the cells of an experiment that were not run, or were with older sources that did something else."""
    missing: list[str] = [] if name == "bench" else experiment(name).missing(read(name))
    return missing


def experiments() -> list[str]:
    """Return the names of all experiments, run or not."""
    from backfield_papers import names

    return names()


def experiment(name: str) -> Any:
    """Return an experiment of the papers' package."""
    from backfield_papers._base import lookup

    return lookup(name)


def found_page() -> str:
    """Return the page with the claims of the papers and what we found."""
    from backfield_papers._accounts import ACCOUNTS, quote

    lines = ["# What we found", "", FOUND, ""]
    for paper, heading in PAPERS.items():
        lines += [f"## {heading}", "", "| | claim | verdict | ours |", "|---|---|---|---|"]
        for name in [name for name in ACCOUNTS if (name[:4] if name[:4] in PAPERS else "") == paper]:
            account = ACCOUNTS[name]
            run = (RESULTS / f"{name}.json").exists()
            link = f"[{name}](results/{name}.md)" if run else name
            found = quote(account.found, read(name)["rows"]) if run else account.found
            data = f" *Data: {account.substitute}.*" if account.substitute else ""
            lines.append(f"| {link} | {account.claim}{data} | {account.verdict} | {found} |")
        lines.append("")
    return "\n".join(lines)


def in_words(name: str) -> list[str]:
    """Return the paragraphs of a result's page that say what was claimed, what was found and what differs."""
    from backfield_papers._accounts import account, quote

    if name == "bench":
        return []
    said, rows = account(name), read(name)["rows"]
    lines = [f"**Data: {said.substitute}.**", ""] if said.substitute else []
    lines += [f"**Claim.** {said.claim}", "", f"**Found ({said.verdict}).** {quote(said.found, rows)}", ""]
    differences = experiment(name).differences()
    if differences:
        lines += ['!!! note "How this differs from the paper"', "", *(f"    - {unmarked(note)}" for note in differences), ""]
    commits = read(name)["settings"].get("commits_of_cells")
    if commits and (len(commits) > 1 or said.commits):
        listed = ", ".join(f"`{each[:8]}`" for each in commits)
        lines += [f"The cells were computed with {listed}. {said.commits}".rstrip(), ""]
    return lines


def result_page(name: str) -> str:
    """Return the page of one result."""
    found = read(name)
    folder = "results/" if name == "bench" else ""
    pictures = pictures_of(name)
    command = "backfield bench --json" if name == "bench" else f"backfield reproduce {name} --out docs/results"
    settings = found.get("settings") or {key: value for key, value in found.items() if key != "rows"}
    whole = "clock" in settings or ("seconds" in found and "commits_of_cells" not in settings)  # else cells are not counted
    took = f", {number(found['seconds'])} seconds" if whole else ""
    lines = [f"# {title(name)}", "", f"`{command}`{took}.", "", *in_words(name)]
    lines += [SPEED] * (name == "bench")
    lines += [f"![{title(name)}]({folder}{picture.name})\n" for picture in pictures]
    cases: dict[str, list[dict[str, Any]]] = {}
    for row in found["rows"]:
        cases.setdefault(str(row.get("case", "")), []).append({k: v for k, v in row.items() if k != "case"})
    for case, rows in cases.items():
        lines += [f"## {case}\n"] * bool(case) + [table(rows), ""]
    if missing := left_out(name):
        lines += ["", "Not run: " + "; ".join(missing) + "."]
    lines += ["", "## Settings", "", *(f"- {key}: `{settings[key]}`" for key in SHOWN if key in settings)]
    rest = {key: value for key, value in settings.items() if key not in (*SHOWN, "title")}
    return "\n".join(lines) + "\n\n" + folded("all settings", f"```json\n{json.dumps(rest, indent=1)}\n```")


def studies_page() -> str:
    """Return the page with the tables of all studies."""
    lines = ["# Studies", "", STUDIES, ""]
    for path in sorted(RESULTS.glob("studies/*.json")):
        found = json.loads(path.read_text())
        rows = found["rows"] if "rows" in found else [{"cell": name} | row for name, row in found["cells"].items()]
        lines += [f"## {path.stem}", "", about(found["command"]), "", f"`{found['command']}`", "", table(rows), ""]
    return "\n".join(lines)


def about(command: str) -> str:
    """Return what the module that a command runs says about itself, without how to call it."""
    module = re.search(r"backfield_benchmarks\.(\w+)", command)
    assert module is not None, f"{command!r} runs no study"
    text = ast.get_docstring(ast.parse((BENCHMARKS / f"{module[1]}.py").read_text())) or ""
    return "\n\n".join(part for part in text.split("\n\n") if not part.startswith("    "))


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows as a table of Markdown; columns that are empty everywhere are left out, lists and dicts, too."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    keys = [key for key in keys if any(row.get(key) is not None for row in rows)]
    keys = [key for key in keys if not any(isinstance(row.get(key), list | dict) for row in rows)]
    lines = ["| " + " | ".join(keys) + " |", "|" + "---|" * len(keys)]
    lines += ["| " + " | ".join(number(row.get(key)) for key in keys) + " |" for row in rows]
    text = "\n".join(lines)
    return text if len(rows) <= MANY else folded(f"{len(rows)} rows", text)


def folded(summary: str, text: str) -> str:
    """Return text that is shown on a click."""
    return f'<details markdown="1"><summary>{summary}</summary>\n\n{text}\n\n</details>\n'


def number(value: Any) -> str:
    """Return a cell: four digits of a number, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value).replace("|", "\\|")
    return f"{value:.4g}"


def pictures_of(name: str) -> list[Path]:
    """Return the committed pictures of an experiment: ``NAME.png``, ``NAME-*.png`` and the figures that it draws."""
    stems = [name, *(figure for figure, drawn_by in DRAWN_BY.items() if drawn_by == name)]
    return [path for stem in stems for path in sorted([*RESULTS.glob(f"{stem}.png"), *RESULTS.glob(f"{stem}-*.png")])]


def gallery() -> str:
    """Return the page with all pictures, each under the experiment that drew it."""
    lines = ["# Gallery", "", "What people get. Each picture was drawn by the command below it.", ""]
    demo = "Denoising: input, truth, and marginals of four models"
    lines += [f"## {demo}", "", f"![{demo}](images/demo.png)", "", "`backfield demo`", ""]
    names = sorted(path.stem for path in RESULTS.glob("*.json"))
    for name in [*(name for name in GALLERY if name in names), *(name for name in names if name not in GALLERY)]:
        pictures = pictures_of(name)
        if pictures:
            lines += [f"## {title(name)}", "", GALLERY.get(name, ""), ""]
            lines += [f"![{title(name)}](results/{picture.name})\n" for picture in pictures]
            lines += [f"`backfield reproduce {name}`, [all numbers](results/{name}.md)", ""]
    return "\n".join(lines)


# ---- API ----


def api_page() -> str:
    """Return the page of the public names."""
    import backfield

    lines = ["# API", "", "Made from the docstrings. `import backfield as bf`; the names of parts are in [Parts](parts.md), "
             "the PyTorch layer in [PyTorch](torch.md).", ""]  # fmt: skip
    listed = {name for names in API.values() for name in names}
    public = [name for name, value in vars(backfield).items() if name[0] != "_" and not inspect.ismodule(value)]
    for heading, names in {**API, "More": [name for name in sorted(public) if name not in listed]}.items():
        lines += [f"## {heading}", ""]
        for name in names:
            lines += described(f"bf.{name}", getattr(backfield, name), "###")
    return "\n".join(lines)


def torch_page() -> str:
    """Return the page of the PyTorch layer."""
    intro = (
        "`pip install 'backfield[torch]'`, then `from backfield.bridges.torch import CRFLayer`. How it is used: "
        "[CNN and CRF](../tutorials/cnn_and_crf.md)."
    )
    lines = ["# PyTorch", "", intro, ""]
    try:
        from backfield.bridges.torch import CRFLayer
    except ImportError:
        return "\n".join([*lines, "PyTorch was not installed where this page was built."])
    return "\n".join(lines + described("CRFLayer", CRFLayer, "##"))


def parts_page() -> str:
    """Return the page of everything that can be named by a spec."""
    import backfield  # noqa: F401
    from backfield.registry import lookup, names

    intro = (
        "Everything with a name. A spec is `name` or `name(key=value)` with Python literals, the same in Python, on the "
        "command line and in model files; `backfield list` prints this page."
    )
    lines = ["# Parts", "", intro, ""]
    for room, words in ROOMS.items():
        lines += [f"## {room}", "", f"{words}.", ""]
        for name in names(room):
            part = lookup(room, name)
            fields = [f for f in dataclasses.fields(part) if f.init]  # type: ignore[arg-type]
            shown = ", ".join(f"{f.name}={_default(f)}" for f in fields)
            lines += [f"### {name}", "", f"`{name}({shown})`" if shown else f"`{name}`", "", markdown_of(part.__doc__), ""]
    return "\n".join(lines)


def _default(field: Any) -> str:
    return "..." if field.default is dataclasses.MISSING else repr(field.default)


def described(name: str, thing: Any, level: str) -> list[str]:
    """Return the lines about a function, or about a class with its public methods."""
    lines = [f"{level} {name}", "", f"```py\n{name}{_signature(thing)}\n```", "", markdown_of(inspect.getdoc(thing)), ""]
    lines += [f"Source: `{home(thing)}`.", ""] if inspect.isclass(thing) or inspect.isfunction(thing) else []
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        for method, value in inspect.getmembers(thing):
            own = any(method in vars(cls) for cls in thing.__mro__ if cls.__module__.startswith("backfield"))
            if own and not method.startswith("_") and (inspect.isroutine(value) or isinstance(value, property)):
                call = "" if isinstance(value, property) else _signature(value)
                lines += [
                    f"{level}# {name}.{method}",
                    "",
                    f"```py\n.{method}{call}\n```",
                    "",
                    markdown_of(inspect.getdoc(value)),
                    "",
                ]
    return lines


def home(thing: Any) -> str:
    """Return file and line of a class or function."""
    return f"{thing.__module__.replace('.', '/')}.py:{inspect.getsourcelines(thing)[1]}"


def _signature(thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return "()"
    kept = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values() if p.name != "self"]
    text = str(signature.replace(parameters=kept, return_annotation=inspect.Signature.empty))
    return text if len(text) < 100 else "(\n    " + ",\n    ".join(str(p) for p in kept) + ",\n)"


def unmarked(text: str) -> str:
    """Return a docstring with its names as code of Markdown."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")


def markdown_of(docstring: str | None) -> str:
    """Turn a numpydoc docstring into Markdown."""
    text = unmarked(inspect.cleandoc(docstring or ""))
    lines = text.split("\n")
    out: list[str] = []
    listed = False
    for k, line in enumerate(lines):
        following = lines[k + 1] if k + 1 < len(lines) else ""
        if re.fullmatch(r"-{3,}", line.strip()):
            continue
        if re.fullmatch(r"-{3,}", following.strip()) and line.strip():
            listed = line.strip() in ("Parameters", "Attributes", "Returns")
            out += ["", f"**{line.strip()}**", ""]
        elif listed and line and not line.startswith(" "):
            name, _, kind = line.partition(" : ")
            out.append(f"- `{name.strip()}`" + (f" ({kind.strip()})" if kind else ""))
        elif line.startswith(">>>"):
            out.append("    " + line.removesuffix("  # doctest: +SKIP"))
        else:
            out.append(line)
    return "\n".join(out).replace("<", "&lt;") if "<" in text and "`" not in text else "\n".join(out)


if __name__ == "__main__":
    write()
