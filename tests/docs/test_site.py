"""The site builds without a warning; pages that are made hold what the files and docstrings say."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("mkdocs")


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_builds_without_warnings(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    site = tmp_path / "site"
    page = re.sub(r"<[^>]+>", "", (site / "extend" / "add_a_loss" / "index.html").read_text())  # highlighted in pieces
    assert "class Loss(Component)" in page.replace("\xa0", " ")
    assert not list(site.glob("**/*.json.html"))
    loaded = re.compile(r"""<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=["']?(?:https?:)?//[^"'\s>]+""")
    for page in site.glob("**/*.html"):
        assert not loaded.findall(page.read_text()), page  # the site works without a network
    for name in ("api/parts", "speed", "gallery", "results/idea", "coming_from"):
        assert (site / name / "index.html").is_file()


def test_pages_of_results_are_those_of_the_committed_results(hooks):
    made = hooks.pages()
    for path, text in made.items():
        assert (ROOT / "docs" / path).read_text() == text, f"{path} is out of date: run python docs/hooks.py"
    assert {path.name for path in (ROOT / "docs" / "results").glob("*.md")} == {
        Path(path).name for path in made if path.startswith("results/")
    }


def test_links_work_where_nothing_is_built():
    """A code host shows the files as they are: every relative link leads to one of them."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("**/*.md")]
    broken = []
    for page in pages:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
            path = link.partition("#")[0]
            if path and "://" not in path and not (page.parent / path).exists():
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert not broken


def test_formulas_are_drawn_without_a_script(hooks):
    html = hooks.on_page_content('<p>a <span class="arithmatex">\\(x_i &lt; 2\\)</span></p>')
    assert html.startswith("<p>a <math") and "<msub>" in html and "\\" not in html
    block = hooks.on_page_content('<div class="arithmatex">\\[\\frac{1}{Z}\\]</div>')
    assert 'display="block"' in block and "<mfrac>" in block


def test_every_committed_result_has_a_page(hooks):
    made = hooks.pages()
    for path in (ROOT / "docs" / "results").glob("*.json"):
        found = json.loads(path.read_text())
        page = made["speed.md" if path.stem == "bench" else f"results/{path.stem}.md"]
        value = next(row["ours"] for row in found["rows"] if "ours" in row) if path.stem != "bench" else "directed message"
        assert hooks.number(value) in page


def test_every_committed_picture_is_in_the_gallery_once(hooks):
    gallery = hooks.gallery()
    for path in (ROOT / "docs" / "results").glob("*.png"):
        assert gallery.count(f"(results/{path.name})") == 1, path.name


def test_the_api_names_everything_public(hooks):
    import backfield
    from backfield.registry import lookup, names, rooms

    page, parts = (hooks.api_pages()[f"api/{name}.md"] for name in ("index", "parts"))
    for name, value in vars(backfield).items():
        if name[0] != "_" and callable(value):
            assert f"# bf.{name}\n" in page, name
    for room in rooms():
        for name in names(room):
            if lookup(room, name).__module__.startswith("backfield."):
                assert f"### {name}" in parts, (room, name)


def test_sources_and_tables_are_filled_in(hooks):
    filled = hooks.filled("a\n<!-- source: backfield.losses.base.Loss -->\n<!-- results: idea -->")
    assert "def value_and_dmu" in filled and "| model | sweeps |" in filled


def test_docstrings_become_markdown(hooks):
    text = "One line.\n\nParameters\n----------\nx : int\n    See :class:`~a.b` and ``c``.\n\nExamples\n--------\n>>> f(1)\n"
    lines = [line for line in hooks.markdown_of(text).split("\n") if line]
    expected = ["One line.", "**Parameters**", "- `x` (int)", "    See `a.b` and `c`.", "**Examples**", "    >>> f(1)"]
    assert lines == expected
