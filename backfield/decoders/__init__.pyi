from backfield.decoders.base import Decoder as Decoder
from backfield.decoders.f_measure import BalancedThreshold as BalancedThreshold
from backfield.decoders.f_measure import ExpectedF as ExpectedF
from backfield.decoders.f_measure import SampledThreshold as SampledThreshold
from backfield.decoders.map import Map as Map
from backfield.decoders.max_marginal import MaxMarginal as MaxMarginal
from backfield.decoders.soft import Soft as Soft
