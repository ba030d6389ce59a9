"""What people have: samples, sequences of them, and the files that hold them."""

from backfield.data.samples import GridSample as GridSample
from backfield.data.samples import Sample as Sample
