"""The papers' tables and figures, measured again: ``backfield reproduce NAME``."""

from backfield_papers._base import Context as Context
from backfield_papers._base import Outcome as Outcome
from backfield_papers._base import experiment as experiment
from backfield_papers._base import names as names
from backfield_papers._base import reproduce as reproduce
