"""The writer of all files: whole or not at all, never over an input."""

import os
import stat
import threading

import pytest

import backfield as bf
from backfield.atomic import check_output, probe, protecting, replacing, write_bytes, write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_error_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    write_text(path, "old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half", None])
    assert path.read_text() == "old" and names(tmp_path) == ["a"]

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")
    assert path.read_text() == "old" and names(tmp_path) == ["a"]


def test_links_are_followed_and_devices_are_left_alone(tmp_path):
    target, link = tmp_path / "folder" / "file", tmp_path / "link"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    write_bytes("/dev/null", b"gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_text(pipe, "through")
    reader.join()
    assert read == [b"through"] and stat.S_ISFIFO(os.stat(pipe).st_mode)


def test_errors_name_what_the_user_wrote(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        write_text(tmp_path / "nowhere" / "a", "text")
    assert caught.value.filename == str(tmp_path / "nowhere" / "a")
    with pytest.raises(OSError, match="folder"):
        probe(tmp_path)
    with pytest.raises(OSError, match="directory"):
        write_text(tmp_path, "text")
    assert names(tmp_path) == []


def test_inputs_are_refused(tmp_path):
    data, other = tmp_path / "data", tmp_path / "other"
    (data / "images").mkdir(parents=True)
    (data / "images" / "0.png").write_bytes(b"pixels")
    other.write_text("old")
    (tmp_path / "link").symlink_to(other)
    with protecting(data, other, None):
        for path in (other, tmp_path / "link", data / "images" / "0.png"):
            for write in (check_output, probe, lambda path: write_text(path, "new")):
                with pytest.raises(bf.InputError, match="it is an input of this command; choose another place"):
                    write(path)
        write_text(data / "model.bf", "new files beside the data may be written")
    assert other.read_text() == "old" and (data / "images" / "0.png").read_bytes() == b"pixels"
    write_text(other, "new")
    assert other.read_text() == "new"
