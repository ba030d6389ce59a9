"""What kind of file something is, by its first bytes: enough to see that a picture is no model."""

from __future__ import annotations

from pathlib import Path

#: Bytes that are looked at.
HEAD = 4096
#: Most bytes of a header of tensors.
MOST = 2**24
MODEL, CHECKPOINT, PAGE = "a model of backfield", "a checkpoint", "an HTML page"
ARRAY, EMPTY = "an array (.npy)", "an empty file"
_STARTS = {
    b"PK\x03\x04": "a zip archive (.npz)",
    b"\x93NUMPY": ARRAY,
    b"\xff\xd8\xff": "a JPEG picture",
    b"\x1f\x8b": "a packed file (.gz)",
    b"lCRF": "a model of CRFsuite",
    b"II*\0": "a TIFF picture",
    b"MM\0*": "a TIFF picture",
    b"<!doctype html": PAGE,
    b"<html": PAGE,
    b"<": "XML",
    b"{": "JSON",
    b"[": "JSON",
    b"markov": "a model (.uai)",
    b"bayes": "a model (.uai)",
    b"mar": "marginals (.uai)",
}


def kind_of(path: Path) -> str:
    """Return in words what a file holds."""
    with path.open("rb") as file:
        head = file.read(HEAD)
        tensors = head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 2**40
        if tensors:  # a header of known length, which says what they are anywhere
            head += file.read(min(int.from_bytes(head[:8], "little"), MOST))
    if not head:
        return EMPTY
    if head.startswith(b"\x89PNG"):
        return "a PNG picture in colour" if head[25:26] in (b"\x02", b"\x06") else "a PNG mask"
    if tensors:
        return CHECKPOINT if b"backfield-checkpoint" in head else MODEL if b'"backfield"' in head else "tensors"
    start = head.lstrip().lower()
    known = next((words for prefix, words in _STARTS.items() if head.startswith(prefix) or start.startswith(prefix)), None)
    return known or ("text" if _is_text(head) else "other data")


def _is_text(head: bytes) -> bool:
    if b"\0" in head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return len(head) == HEAD and error.start > HEAD - 4  # a letter that is cut
    return True
