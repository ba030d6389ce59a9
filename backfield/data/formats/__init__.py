"""Files that other people's tools read and write."""

from typing import TYPE_CHECKING

from backfield.lazy_names import lazy_names

if TYPE_CHECKING:
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

#: Where each name lives: who reads one kind of file needs no other.
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "backfield.data.formats.bif": (
            "read_bif",
            "write_bif",
        ),
        "backfield.data.formats.columns": (
            "read_column_file",
            "write_column_file",
        ),
        "backfield.data.formats.images": (
            "read_image_folder",
            "write_mask",
        ),
        "backfield.data.formats.libdai": (
            "read_fg",
            "write_fg",
        ),
        "backfield.data.formats.named_tables": ("NamedTables",),
        "backfield.data.formats.npz": (
            "read_npz",
            "write_npz",
        ),
        "backfield.data.formats.uai": (
            "read_evidence",
            "read_mar",
            "read_pr",
            "read_uai",
            "write_evidence",
            "write_mar",
            "write_pr",
            "write_uai",
        ),
        "backfield.data.formats.xmlbif": (
            "read_xmlbif",
            "write_xmlbif",
        ),
    },
)
