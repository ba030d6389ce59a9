"""Scores, charts and pages that show what was learned."""

from backfield.report.html import ModelResult as ModelResult
from backfield.report.html import TaggedSentence as TaggedSentence
from backfield.report.html import write_report as write_report
from backfield.report.metrics import Metrics as Metrics
from backfield.report.metrics import calibration as calibration
from backfield.report.metrics import chunk_scores as chunk_scores
from backfield.report.metrics import confusion as confusion
from backfield.report.metrics import evaluate as evaluate
from backfield.report.metrics import log_loss as log_loss
from backfield.report.pictures import Picture as Picture
from backfield.report.pictures import Row as Row
