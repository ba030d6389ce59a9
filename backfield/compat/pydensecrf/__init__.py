"""pydensecrf's names and conventions on our engine: ``densecrf`` and ``utils``.

    import backfield.compat.pydensecrf.densecrf as dcrf
    from backfield.compat.pydensecrf.utils import unary_from_softmax

Energies are costs (minus log-potentials), arrays (labels, variables) in float32, kernels normalised symmetrically and with
their self terms, on the lattice as published: the same numbers to 1e-6. Nothing here is learned: that is what
:class:`backfield.DenseCRF` is for.
"""

from backfield.compat.pydensecrf import densecrf as densecrf
from backfield.compat.pydensecrf import utils as utils
