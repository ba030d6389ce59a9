"""Files that other people's tools read and write."""

from backfield.io.bif import read_bif as read_bif
from backfield.io.bif import write_bif as write_bif
from backfield.io.columns import read_column_file as read_column_file
from backfield.io.columns import write_column_file as write_column_file
from backfield.io.data import Data as Data
from backfield.io.data import read_data as read_data
from backfield.io.images import read_image_folder as read_image_folder
from backfield.io.images import write_mask as write_mask
from backfield.io.libdai import read_fg as read_fg
from backfield.io.libdai import write_fg as write_fg
from backfield.io.named_tables import NamedTables as NamedTables
from backfield.io.preprocessing import Preprocessing as Preprocessing
from backfield.io.preprocessing import choose_preprocessing as choose_preprocessing
from backfield.io.tables import read_npz as read_npz
from backfield.io.tables import write_npz as write_npz
from backfield.io.uai import read_evidence as read_evidence
from backfield.io.uai import read_mar as read_mar
from backfield.io.uai import read_pr as read_pr
from backfield.io.uai import read_uai as read_uai
from backfield.io.uai import write_evidence as write_evidence
from backfield.io.uai import write_mar as write_mar
from backfield.io.uai import write_pr as write_pr
from backfield.io.uai import write_uai as write_uai
from backfield.io.xmlbif import read_xmlbif as read_xmlbif
from backfield.io.xmlbif import write_xmlbif as write_xmlbif
