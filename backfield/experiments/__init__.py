"""The papers' tables and figures, measured again: ``backfield reproduce NAME``."""

from backfield.experiments._base import Context as Context
from backfield.experiments._base import Outcome as Outcome
from backfield.experiments._base import experiment as experiment
from backfield.experiments._base import names as names
from backfield.experiments._base import reproduce as reproduce
