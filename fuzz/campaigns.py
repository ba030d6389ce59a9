"""What is attacked, by which campaign."""

from __future__ import annotations

from fuzz.calls import Arguments, CommandLines
from fuzz.files import Arrays, Checkpoints, CrfsuiteFiles, ModelFiles, Packs, Pictures
from fuzz.forged import ForgedCheckpoints, ForgedModels, ForgedPacks
from fuzz.label_requests import LabelRequests
from fuzz.methods import Methods
from fuzz.stacks import Stacks
from fuzz.texts import Columns, ModelTexts

CAMPAIGNS = [
    ModelFiles, ForgedModels, Packs, ForgedPacks, Checkpoints, ForgedCheckpoints, Arrays, Pictures, CrfsuiteFiles,
    Stacks, ModelTexts, Columns, Arguments, Methods, LabelRequests, CommandLines,
]  # fmt: skip
