"""features, w -> theta."""

from backfield.energies.base import Energy as Energy
from backfield.energies.given import Given as Given
from backfield.energies.linear import Constant as Constant
from backfield.energies.linear import Linear as Linear
from backfield.energies.linear import Zero as Zero
from backfield.energies.network import Network as Network
from backfield.energies.network import NetworkEnergy as NetworkEnergy
from backfield.energies.observed_constant import ObservedConstant as ObservedConstant
from backfield.energies.observed_linear import ObservedLinear as ObservedLinear
from backfield.energies.plus_minus import PlusMinus as PlusMinus
from backfield.energies.potts import Potts as Potts
