import re
from pathlib import Path

from backfield.cli.app import COMMANDS
from backfield.registry import names

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_prints_what_it_says(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, output = re.search(r"```python\n(.*?)```\n```text\n(.*?)```", README, re.DOTALL).groups()
    exec(code, {})
    assert capsys.readouterr().out == output


def test_every_method_in_the_table_exists():
    named = re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)
    assert named and set(named) <= set(names("inference"))


def test_the_commands_exist():
    shown = [
        name
        for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
        for name in re.findall(r"^backfield (\w+)", block, re.M)
    ]
    assert {"fit", "evaluate", "predict", "infer"} <= set(shown) <= set(COMMANDS)


def test_every_link_leads_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links and all((ROOT / link).exists() for link in links)


def test_it_stays_short():
    assert README.count("\n") < 110
