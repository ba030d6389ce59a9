"""mu, labels -> value, d_mu."""

from backfield.losses.base import Loss as Loss
from backfield.losses.decoded import L1 as L1
from backfield.losses.decoded import MSE as MSE
from backfield.losses.decoded import FMeasure as FMeasure
from backfield.losses.hybrid import Hybrid as Hybrid
from backfield.losses.logistic import CliqueLogistic as CliqueLogistic
from backfield.losses.logistic import UnivariateLogistic as UnivariateLogistic
from backfield.losses.quadratic import CliqueQuadratic as CliqueQuadratic
from backfield.losses.quadratic import UnivariateQuadratic as UnivariateQuadratic
from backfield.losses.smoothed_error import CliqueSmoothedError as CliqueSmoothedError
from backfield.losses.smoothed_error import SmoothedError as SmoothedError
