"""``backfield convert``: models of other programs, and for them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from backfield.cli._models import Force


def convert(
    model: Annotated[Path, typer.Argument(help="A backfield model, or a .crfsuite file.")],
    out: Annotated[Path, typer.Argument(help="Output file; a name ending in .crfsuite is written for CRFsuite.")],
    force: Force = False,
) -> None:
    """Convert a model from or to the format of CRFsuite."""
    from backfield.atomic import protecting, write_bytes
    from backfield.estimators.crfsuite_model import write_crfsuite
    from backfield.estimators.model_file import load

    crf = load(model)
    with protecting(model, force=force):
        if out.suffix == ".crfsuite":
            write_bytes(out, write_crfsuite(crf))
        else:
            crf.save(out)
    typer.echo(f"{len(crf.feature_names_ or ())} features, {len(crf.classes_)} labels; wrote {out}")
