"""Files of networks: there and back to the bit, and one sentence with the line for each mistake."""

import gzip

import numpy as np
import pytest

import backfield as bf
from backfield.models import Model
from tests.datasets.real import real_data
from tests.named_models.test_model import mixed, random_network, sprinkler

GOOD = """network unknown {
  property author nobody;
}
// a comment
variable rain {
  type discrete [ 2 ] { no, yes };
}
variable "wet grass" {
  type discrete [ 3 ] { dry, damp, "very wet" };
  property position = (1, 2);
}
probability ( rain ) {
  table 0.8, 0.2;
}
/* a longer
   one */
probability ( "wet grass" | rain ) {
  (no) 0.7, 0.2, 0.1;
  (yes) 0.1, 0.3, 0.6;
}
"""
ENDINGS = (".bif", ".bif.gz", ".xmlbif", ".xml.gz", ".uai", ".uai.gz", ".fg")


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-15)


def write(folder, text, name="a.bif"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("ending", ENDINGS)
def test_there_and_back(ending, tmp_path):
    for model in (sprinkler(), random_network(1), random_network(2)):
        path = tmp_path / f"model{ending}"
        model.write(path)
        other = Model.read(path)
        likely = int(model.marginals()[model.names[0]].argmax())
        given = {other.names[0]: other.states[other.names[0]][likely]}
        mine = {model.names[0]: model.states[model.names[0]][likely]}
        assert other.is_directed == (not ending.startswith(".fg"))
        for a, b in zip(model.marginals(mine).values(), other.marginals(given).values(), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
        if "bif" in ending or "xml" in ending:
            assert other.states == model.states
            for name in model.names:
                assert other.conditional(name)[0] == model.conditional(name)[0]
                np.testing.assert_allclose(other.conditional(name)[1], model.conditional(name)[1], rtol=1e-15)


@pytest.mark.parametrize("ending", [".uai", ".fg"])
def test_markov_networks(ending, tmp_path):
    model = mixed(3)
    model.write(tmp_path / f"model{ending}")
    other = Model.read(tmp_path / f"model{ending}")
    assert not other.is_directed and other.names[:2] == ("x0", "x1") and other.states["x0"][0] == "0"
    assert other.log_partition == pytest.approx(model.log_partition, abs=1e-10)
    with pytest.raises(bf.InputError, match="holds Bayesian networks"):
        model.write(tmp_path / "model.bif")


def test_the_parts_of_a_bif(tmp_path):
    model = Model.read(write(tmp_path, GOOD))
    assert model.names == ("rain", "wet grass") and model.states["wet grass"] == ("dry", "damp", "very wet")
    close(model.conditional("wet grass")[1], [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    # ``table`` has the variable itself slowest; ``default`` fills the rows that are not listed
    table = GOOD.replace("(no) 0.7, 0.2, 0.1;\n  (yes) 0.1, 0.3, 0.6;", "table 0.7, 0.1, 0.2, 0.3, 0.1, 0.6;")
    other = Model.read(write(tmp_path, table))
    close(other.conditional("wet grass")[1], model.conditional("wet grass")[1])
    other = Model.read(write(tmp_path, GOOD.replace("(no) 0.7", "default 0.7")))
    close(other.conditional("wet grass")[1], model.conditional("wet grass")[1])


def test_xmlbif_has_the_variable_fastest(tmp_path):
    text = (
        "<BIF><NETWORK><VARIABLE><NAME>a</NAME><OUTCOME>x</OUTCOME><OUTCOME>y</OUTCOME></VARIABLE>"
        "<VARIABLE><NAME>b</NAME><OUTCOME>x</OUTCOME><OUTCOME>y</OUTCOME></VARIABLE>"
        "<DEFINITION><FOR>a</FOR><TABLE>.5 .5</TABLE></DEFINITION>"
        "<DEFINITION><FOR>b</FOR><GIVEN>a</GIVEN><TABLE>.9 .1 .3 .7</TABLE></DEFINITION></NETWORK></BIF>"
    )
    model = Model.read(write(tmp_path, text, "a.xml"))
    close(model.conditional("b")[1], [[0.9, 0.1], [0.3, 0.7]])
    for old, new, message in [
        ("<FOR>b", "<FOR>bb", "line 1: there is no variable 'bb'; did you mean 'b'?"),
        (".9 .1 .3 .7", ".9 .1 .3", "has 3 numbers; 4 are needed"),
        (".9 .1 .3 .7", ".9 .1 .3 x", "not a number"),
        (".9 .1 .3 .7", ".9 .1 .3 .3", "sums to 0.6"),
        ("</NETWORK></BIF>", "", "malformed XML"),
        ("<GIVEN>a", "<GIVEN>b", "names a variable twice"),
        ("<FOR>a</FOR>", "<FOR>a</FOR><GIVEN>b</GIVEN>", "has 2 numbers; 4 are needed"),
        ("<NAME>b", "<NAME>a", "described twice"),
        ("<OUTCOME>y", "<OUTCOME>x", "lists the state 'x' twice"),
        ("<BIF>", '<!DOCTYPE a [<!ENTITY e "eeee">]><BIF>', "the entity 'e' is declared"),
    ]:
        assert old in text
        with pytest.raises(bf.InputError) as caught:
            Model.read(write(tmp_path, text.replace(old, new), "a.xml"))
        assert message in str(caught.value), caught.value


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("network unknown", "graph unknown", 1, "starts with 'network'"),
        ("[ 2 ] { no, yes }", "[ 3 ] { no, yes }", 6, "announces 3 states and lists 2"),
        ("[ 2 ] { no, yes }", "[ \u00b2 ] { no, yes }", 6, "announces \u00b2 states and lists 2"),
        ("[ 2 ] { no, yes }", "[ 0 ] { }", 6, "0 states; 1 to"),
        ("[ 2 ] { no, yes }", "[ 2 ] { no, no }", 6, "lists the state 'no' twice"),
        ("type discrete [ 2 ] { no, yes };", "", 5, "'rain' has no states"),
        ("discrete [ 2 ]", "continuous [ 2 ]", 6, "only discrete"),
        ("variable rain", 'variable "wet grass"', 8, "described twice"),
        ("| rain", "| rian", 17, "there is no variable 'rian'; did you mean 'rain'?"),
        ("| rain", '| "wet grass"', 17, "names a variable twice"),
        ("(yes) 0.1", "(yess) 0.1", 19, "'rain' has no state 'yess'; did you mean 'yes'?"),
        ("(yes) 0.1", "(no) 0.1", 19, "row (no) of P(wet grass | ...) is given twice"),
        ("(yes) 0.1", "(yes, no) 0.1", 19, "names 2 states of 1 parents"),
        ("(yes) 0.1, 0.3, 0.6;", "", 17, "has no row for (yes)"),
        ("0.1, 0.3, 0.6", "0.1, 0.3, 0.5", 19, "sums to 0.9, not to 1"),
        ("0.1, 0.3, 0.6", "0.1, -0.3, 1.2", 19, "holds -0.3"),
        ("0.1, 0.3, 0.6", "0.1, nan, 0.6", 19, "holds nan"),
        ("0.1, 0.3, 0.6", "0.1, 0.3", 19, "has 2 numbers; 3 are needed"),
        ("0.1, 0.3, 0.6", "0.1, 0.3, 0.x", 19, "'0.x' in a row of P(wet grass | ...) is not a number"),
        ("table 0.8, 0.2", "table 0.8", 13, "has 1 numbers; 2 are needed"),
        ("table 0.8, 0.2;", "(no) 0.8, 0.2;", 13, "names 1 states of 0 parents"),
        ("probability ( rain ) {\n  table 0.8, 0.2;\n}", "", None, "variable 'rain' has no probabilities"),
        ("0.1, 0.3, 0.6;\n}\n", "0.1, 0.3, 0.6;\n", 19, "the file ends early"),
        ("0.1, 0.3, 0.6;\n}\n", "0.1, 0.3", 19, "a row '(states) numbers;', 'table' or 'default' is needed, not '('"),
        ("( rain ) {\n  table 0.8, 0.2;", "( rain ) {\n  sums 0.8, 0.2;", 13, "'table' or 'default' is needed, not 'sums'"),
    ],
)
def test_mistakes_have_a_line(old, new, line, message, tmp_path):
    assert old in GOOD
    with pytest.raises(bf.InputError) as caught:
        Model.read(write(tmp_path, GOOD.replace(old, new)))
    text = str(caught.value)
    assert message in text and "\n" not in text
    assert line is None or f", line {line}:" in text, text


def test_cycles(tmp_path):
    text = GOOD.replace("( rain ) {\n  table 0.8, 0.2;", '( rain | "wet grass" ) {\n  default 0.8, 0.2;')
    with pytest.raises(bf.InputError, match=r"line (12|17): the network has a cycle: .*rain.*wet grass|wet grass.*rain"):
        Model.read(write(tmp_path, text))


def test_every_cut_of_a_file_is_one_sentence(tmp_path):
    for end in range(0, GOOD.rindex("}") - 1, 3):
        with pytest.raises(bf.InputError) as caught:
            Model.read(write(tmp_path, GOOD[:end]))
        assert "\n" not in str(caught.value)


def test_hostile_sizes(tmp_path):
    names = [f"v{i}" for i in range(40)]
    blocks = [f"variable {name} {{ type discrete [ 2 ] {{ a, b }}; }}" for name in names]
    blocks.append(f"probability ( v0 | {', '.join(names[1:])} ) {{ default 0.5, 0.5; }}")
    with pytest.raises(bf.InputError, match=r"1,099,511,627,776 entries"):
        Model.read(write(tmp_path, "network x { }\n" + "\n".join(blocks)))
    with pytest.raises(bf.InputError, match="announces 999999999 states and lists 2"):
        Model.read(write(tmp_path, GOOD.replace("[ 2 ]", "[ 999999999 ]")))
    path = tmp_path / "bad.bif.gz"
    path.write_bytes(gzip.compress(GOOD.encode())[:-20])
    with pytest.raises(bf.InputError, match="not a complete gzip file"):
        Model.read(path)
    path.write_bytes(b"network")
    with pytest.raises(bf.InputError, match="not a complete gzip file"):
        Model.read(path)


def test_bayes_files_of_uai(tmp_path):
    text = "BAYES\n2\n2 2\n2\n1 0\n2 0 1\n\n2\n.8 .2\n4\n.9 .1 .3 .7\n"
    model = Model.read(write(tmp_path, text, "a.uai"))
    assert model.is_directed and model.parents("x1") == ("x0",) and model.log_partition == 0
    model = Model.read(write(tmp_path, text.replace(".3 .7", ".3 .6"), "a.uai"))
    assert not model.is_directed and model.log_partition == pytest.approx(np.log(0.98))


@pytest.mark.parametrize("name", ["alarm", "asia", "cancer", "child", "hailfinder", "hepar2", "insurance", "sachs", "survey",
                                  "water", "win95pts"])  # fmt: skip
def test_networks_of_bnlearn(name, tmp_path):
    model = Model.read(real_data("bnlearn") / "bnlearn" / f"{name}.bif.gz")
    assert model.is_directed
    model.write(tmp_path / "again.xmlbif")
    other = Model.read(tmp_path / "again.xmlbif")
    given = {key: other.sample(1, seed=3)[key][0] for key in model.names[::10]}
    # all at once through the whole network, and one by one through what is left of it
    for key, row in model.marginals(given).items():
        np.testing.assert_allclose(other.table(key, given).values, row, rtol=0, atol=1e-10)
