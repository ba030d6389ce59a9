"""How good predictions are, for one labeling per example, of any sizes: numbers, and scorers for scikit-learn.

>>> from sklearn.model_selection import cross_val_score
>>> cross_val_score(crf, images, masks, scoring="accuracy")  # doctest: +SKIP
>>> cross_val_score(crf, images, masks, scoring=bf.metrics.neg_ece)  # doctest: +SKIP
"""

from backfield.metrics.scorers import RaggedScorer as RaggedScorer
from backfield.metrics.scorers import StructuredTags as StructuredTags
from backfield.metrics.scorers import accuracy as accuracy
from backfield.metrics.scorers import class_iou as class_iou
from backfield.metrics.scorers import mean_iou as mean_iou
from backfield.metrics.scorers import neg_ece as neg_ece
from backfield.metrics.scorers import neg_log_loss as neg_log_loss
from backfield.metrics.scorers import register as register
from backfield.metrics.tally import Calibration as Calibration
from backfield.metrics.tally import ChunkScores as ChunkScores
from backfield.metrics.tally import Metrics as Metrics
from backfield.metrics.tally import Tally as Tally
from backfield.metrics.tally import calibration as calibration
from backfield.metrics.tally import chunk_scores as chunk_scores
from backfield.metrics.tally import confusion as confusion
from backfield.metrics.tally import evaluate as evaluate
from backfield.metrics.tally import log_loss as log_loss
from backfield.metrics.validation import cross_val_predict as cross_val_predict
