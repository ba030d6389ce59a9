"""Packed folders: examples in shards that are memory-mapped one example at a time."""

from backfield.data.packed.reader import Shards as Shards
from backfield.data.packed.reader import is_packed as is_packed
from backfield.data.packed.reader import open_data as open_data
from backfield.data.packed.reader import open_shards as open_shards
from backfield.data.packed.writer import write_shards as write_shards
