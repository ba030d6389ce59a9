"""Files that other people's tools read and write."""

from backfield.data.formats.bif import read_bif as read_bif
from backfield.data.formats.bif import write_bif as write_bif
from backfield.data.formats.columns import read_column_file as read_column_file
from backfield.data.formats.columns import write_column_file as write_column_file
from backfield.data.formats.images import read_image_folder as read_image_folder
from backfield.data.formats.images import write_mask as write_mask
from backfield.data.formats.libdai import read_fg as read_fg
from backfield.data.formats.libdai import write_fg as write_fg
from backfield.data.formats.named_tables import NamedTables as NamedTables
from backfield.data.formats.npz import read_npz as read_npz
from backfield.data.formats.npz import write_npz as write_npz
from backfield.data.formats.uai import read_evidence as read_evidence
from backfield.data.formats.uai import read_mar as read_mar
from backfield.data.formats.uai import read_pr as read_pr
from backfield.data.formats.uai import read_uai as read_uai
from backfield.data.formats.uai import write_evidence as write_evidence
from backfield.data.formats.uai import write_mar as write_mar
from backfield.data.formats.uai import write_pr as write_pr
from backfield.data.formats.uai import write_uai as write_uai
from backfield.data.formats.xmlbif import read_xmlbif as read_xmlbif
from backfield.data.formats.xmlbif import write_xmlbif as write_xmlbif
