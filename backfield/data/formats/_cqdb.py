"""Dictionaries of strings as they lie in models of CRFsuite ("CQDB"): text -> number by hashing, number -> text by an array.

A chunk has a header, references to 256 hash tables, the records (number, length, text with a zero byte), the tables (open
addressing, twice as many places as records) and the places of the records by number. Offsets count from the chunk's start.
"""

from __future__ import annotations

import struct

import numpy as np

from backfield.errors import InputError

_HEADER = struct.Struct("<4s5I")
_RECORD = struct.Struct("<2I")
_BYTE_ORDER = 0x62445371
_TABLES = 256
_START = _HEADER.size + _TABLES * _RECORD.size


def read_strings(data: bytes, start: int, count: int, what: str) -> list[str]:
    """Return the strings 0 .. count - 1 of the chunk at ``start``; bytes that are not UTF-8 become surrogates."""
    if not 0 <= start <= len(data) - _START:
        raise InputError(f"the dictionary of {what} lies outside of the file")
    magic, size, _, order, _, places = _HEADER.unpack_from(data, start)
    if magic != b"CQDB" or order != _BYTE_ORDER or not _START <= size <= len(data) - start:
        raise InputError(f"the dictionary of {what} has a corrupt header")
    chunk = memoryview(data)[start : start + size]
    if count == 0:
        return []
    if not _START <= places <= size - 4 * count:
        raise InputError(f"the dictionary of {what} has fewer than {count} entries")
    # No two records overlap in a sound file, so all together are no longer than the chunk.
    strings, left = [], size
    for number, place in enumerate(np.frombuffer(chunk, "<u4", count, places).tolist()):
        text = _record(chunk, place, number, what)
        left -= len(text) + 1
        if left < 0:
            raise InputError(f"the dictionary of {what} is corrupt: its entries overlap")
        strings.append(text.decode("utf-8", "surrogateescape"))
    if len(set(strings)) < count:
        raise InputError(f"the dictionary of {what} holds one of them twice")
    return strings


def _record(chunk: memoryview, place: int, number: int, what: str) -> bytes:
    if _START <= place <= len(chunk) - _RECORD.size:
        stored, length = _RECORD.unpack_from(chunk, place)
        first = place + _RECORD.size
        if stored == number and 1 <= length <= len(chunk) - first:
            text = bytes(chunk[first : first + length])
            if text.find(b"\0") == length - 1:
                return text[:-1]
    raise InputError(f"the dictionary of {what} is corrupt at entry {number}")


def format_strings(strings: list[str]) -> bytes:
    """Return the chunk of strings 0 .. n - 1."""
    keys = [text.encode("utf-8", "surrogateescape") + b"\0" for text in strings]
    records = [_RECORD.pack(number, len(key)) + key for number, key in enumerate(keys)]
    places = _START + np.concatenate([[0], np.cumsum([len(record) for record in records])]).astype(np.int64)
    hashes = string_hashes(keys)
    tables = [_table(hashes[chosen], places[chosen]) for chosen in _by_table(hashes)]
    starts = int(places[-1]) + np.concatenate([[0], np.cumsum([table.nbytes for table in tables])]).astype(np.int64)
    references = np.array([(at if len(t) else 0, len(t)) for at, t in zip(starts, tables, strict=False)], "<u4")
    body = b"".join([references.tobytes(), *records, *(table.tobytes() for table in tables)])
    size = _HEADER.size + len(body) + 4 * len(keys)
    header = _HEADER.pack(b"CQDB", size, 0, _BYTE_ORDER, len(keys), _HEADER.size + len(body) if keys else 0)
    return header + body + places[:-1].astype("<u4").tobytes()


def _by_table(hashes: np.ndarray) -> list[np.ndarray]:
    """Return the numbers of the strings of each table, in order."""
    order = np.argsort(hashes % _TABLES, kind="stable")
    return np.split(order, np.searchsorted(hashes[order] % _TABLES, np.arange(1, _TABLES)))


def _table(hashes: np.ndarray, places: np.ndarray) -> np.ndarray:
    size = 2 * len(hashes)
    table = np.zeros((size, 2), "<u4")
    taken = [False] * size
    for value, place in zip(hashes.tolist(), places.tolist(), strict=True):
        at = (value >> 8) % size
        while taken[at]:
            at = (at + 1) % size
        taken[at] = True
        table[at] = value, place
    return table


def string_hashes(keys: list[bytes]) -> np.ndarray:
    """Return Jenkins' lookup3 hashes (``hashlittle``, seed 0) of non-empty keys, those of one number of blocks together."""
    lengths = np.array([len(key) for key in keys], dtype=np.int64)
    out, blocks = np.zeros(len(keys), np.uint32), (lengths + 11) // 12
    for count in np.unique(blocks).tolist():
        rows = np.flatnonzero(blocks == count)
        text = b"".join(keys[row].ljust(12 * count, b"\0") for row in rows)
        words = np.frombuffer(text, "<u4").reshape(len(rows), count, 3).astype(np.uint32)
        out[rows] = _hash(words, lengths[rows].astype(np.uint32))
    return out


def _hash(words: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    a = np.uint32(0xDEADBEEF) + lengths
    b, c = a.copy(), a.copy()
    for block in range(words.shape[1]):
        a, b, c = a + words[:, block, 0], b + words[:, block, 1], c + words[:, block, 2]
        if block < words.shape[1] - 1:
            a, b, c = _mix(a, b, c)
    for shift in (14, 11, 25, 16, 4, 14, 24):
        c = (c ^ b) - _rotated(b, shift)
        a, b, c = b, c, a
    return b


def _mix(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    for shift in (4, 6, 8, 16, 19, 4):
        a = (a - c) ^ _rotated(c, shift)
        c = c + b
        a, b, c = b, c, a
    return a, b, c


def _rotated(x: np.ndarray, shift: int) -> np.ndarray:
    return (x << np.uint32(shift)) | (x >> np.uint32(32 - shift))
