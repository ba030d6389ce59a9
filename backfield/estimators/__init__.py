"""The scikit-learn face."""

from backfield.data.samples import GridSample as GridSample
from backfield.data.samples import Sample as Sample
from backfield.estimators.chain_crf import ChainCRF as ChainCRF
from backfield.estimators.classifier import Classifier as Classifier
from backfield.estimators.crf import CRF as CRF
from backfield.estimators.dense_crf import DenseCRF as DenseCRF
from backfield.estimators.graph_crf import GraphCRF as GraphCRF
from backfield.estimators.grid_crf import GridCRF as GridCRF
from backfield.estimators.multi_label import MultiLabelCRF as MultiLabelCRF
from backfield.estimators.scaled import Scaled as Scaled
from backfield.estimators.volume_crf import VolumeCRF as VolumeCRF
