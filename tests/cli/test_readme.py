import re
from pathlib import Path

from backfield._component import names

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_example_prints_what_it_says(capsys):
    code, output = re.search(r"```python\n(.*?)```\n```text\n(.*?)```", README, re.DOTALL).groups()
    exec(code, {})
    assert capsys.readouterr().out == output


def test_every_method_in_the_table_exists():
    named = re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)
    assert named and set(named) <= set(names("inference"))


def test_it_stays_short():
    assert README.count("\n") < 80
