"""Files that other people's tools read and write."""

from backfield.io.libdai import read_fg as read_fg
from backfield.io.uai import read_evidence as read_evidence
from backfield.io.uai import read_mar as read_mar
from backfield.io.uai import read_pr as read_pr
from backfield.io.uai import read_uai as read_uai
from backfield.io.uai import write_evidence as write_evidence
from backfield.io.uai import write_mar as write_mar
from backfield.io.uai import write_pr as write_pr
from backfield.io.uai import write_uai as write_uai
