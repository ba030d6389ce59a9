"""Scores, charts and pages that show what was learned."""

from backfield.metrics import Metrics as Metrics
from backfield.metrics import calibration as calibration
from backfield.metrics import chunk_scores as chunk_scores
from backfield.metrics import confusion as confusion
from backfield.metrics import evaluate as evaluate
from backfield.metrics import log_loss as log_loss
from backfield.report.gallery import Example as Example
from backfield.report.html import ModelResult as ModelResult
from backfield.report.html import TaggedSentence as TaggedSentence
from backfield.report.html import write_report as write_report
from backfield.report.pictures import Picture as Picture
from backfield.report.pictures import Row as Row
