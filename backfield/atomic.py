"""Files that are written whole or not at all: the one writer of the package.

    data -> .NAME.<random> (same folder) -> fsync -> rename to NAME -> fsync of the folder

A process killed at any moment leaves the old file or the new one. Symbolic links are followed; what is no file (a device, a
pipe) is written to and not replaced; the inputs of a command (:func:`protecting`) are refused, and so is, without
``force``, a file of another kind than the new one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import IO

from backfield.errors import InputError
from backfield.file_kinds import EMPTY, kind_of

_PROTECTED: ContextVar[tuple[Path, ...]] = ContextVar("protected", default=())
#: Whether files of another kind are left alone, too.
_KINDS: ContextVar[bool] = ContextVar("kinds", default=False)


@contextlib.contextmanager
def protecting(*inputs: str | os.PathLike[str] | None, force: bool = False) -> Iterator[None]:
    """Refuse to replace any of these files, or anything in these folders, inside the block.

    Files of another kind than the new ones are refused, too, without ``force``.
    """
    paths = tuple(Path(os.path.realpath(path)) for path in inputs if path is not None)
    tokens = _PROTECTED.set(_PROTECTED.get() + paths), _KINDS.set(not force)
    try:
        yield
    finally:
        _PROTECTED.reset(tokens[0])
        _KINDS.reset(tokens[1])


def check_output(path: str | os.PathLike[str], kind: str | None = None) -> Path:
    """Return the file that a path leads to, refused where it is an input of this command, or no ``kind`` of file."""
    if not isinstance(path, str | os.PathLike) or "\0" in os.fspath(path):
        raise InputError(f"the name of a file must be text or a path; received {type(path).__name__}.")
    target = Path(os.path.realpath(path))
    for source in _PROTECTED.get():
        if target == source or (target.exists() and source in target.parents):
            raise InputError(f"cannot write {path}: it is an input of this command; choose another place.")
    if kind is not None:
        _check_kind(target, path, kind)
    return target


def _check_kind(target: Path, path: str | os.PathLike[str], kind: str) -> None:
    if _KINDS.get() and target.is_file() and kind_of(target) not in (kind, EMPTY):
        raise InputError(
            f"cannot write {path}: it holds {kind_of(target)}, which {kind} would replace; choose another place, or "
            "add --force."
        )


def is_special(target: Path) -> bool:
    """Whether something is there that is neither a file nor a folder: a device, a pipe."""
    return target.exists() and not target.is_file() and not target.is_dir()


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Give a file to write to, which takes the place of ``path`` when the block has ended without an error."""
    target = check_output(path)
    if is_special(target):
        with open(target, "wb") as file:
            yield file
        return
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:  # not mkstemp, whose files only their owner may read
            yield file
            file.flush()
            os.fsync(file.fileno())
        _check_kind(target, path, kind_of(temporary))
        os.replace(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        if error.filename is not None:
            error.filename, error.filename2 = str(path), None  # the name that people know
        raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


@contextlib.contextmanager
def replacing_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path of the same ending for libraries that open files themselves; the rest as :func:`replacing`."""
    target = check_output(path)
    if is_special(target):
        raise InputError(f"cannot write {path}: it is a device or a pipe; choose a file.")
    temporary = target.with_name(f".{secrets.token_hex(4)}.{target.name}")
    try:
        yield temporary
        _check_kind(target, path, kind_of(temporary))
        os.replace(temporary, target)
        sync_folder(target.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Put ``data`` in the place of a file; raises OSError and leaves the old file if that fails."""
    with replacing(path) as file:
        file.write(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Put a text, in UTF-8, in the place of a file."""
    write_bytes(path, text.encode())


def probe(path: str | os.PathLike[str], kind: str | None = None) -> None:
    """Raise OSError if a file, of this ``kind``, could not be written there; an existing file stays as it is."""
    target = check_output(path, kind)
    if target.is_dir():
        raise IsADirectoryError(0, "it is a folder")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def sync_folder(folder: Path) -> None:
    """Make a rename last; not every system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
