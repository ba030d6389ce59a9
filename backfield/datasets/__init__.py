"""Data sets: read from a folder (``docs/data.md`` says where to get each), or generated."""

from backfield.datasets import backgrounds as backgrounds
from backfield.datasets import bsds as bsds
from backfield.datasets import conll as conll
from backfield.datasets import generated as generated
from backfield.datasets import horses as horses
from backfield.datasets import letters as letters
from backfield.datasets._files import data_dir as data_dir
from backfield.datasets._files import locate as locate
from backfield.datasets._files import read_image as read_image
from backfield.datasets._files import read_mask as read_mask
