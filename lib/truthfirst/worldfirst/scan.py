"""Reading a hostile workspace: what is under output/, in bounded time and memory, or why it cannot be graded.

An agent may leave anything: links that lead out of the tree, pipes and devices, sparse files of ten gigabytes, a
million files, names that are no UTF-8, files that change while they are read. The scan follows no link, opens nothing
but regular files, stops at the first thing that breaks a bound, writes nothing, and gives plain bytes in memory;
graders never see the disk. What lies outside output/ is not looked at.

`Scan.problem` names the first thing wrong; such a workspace is graded 0. Nothing here decompresses anything.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .world import OUTPUT, Files

_FOLDER = OUTPUT.rstrip("/")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is read: entries (folders count), bytes of all files together, depth of folders, length of a path."""

    entries: int = 1_000
    total_bytes: int = 16 << 20
    depth: int = 8
    path_length: int = 400

    @classmethod
    def of(cls, files: Files) -> Bounds:
        """Return bounds that fit a task: eight times its input and one megabyte more."""
        return cls(total_bytes=(1 << 20) + 8 * sum(map(len, files.values())))


@dataclass(frozen=True, slots=True)
class Scan:
    """Files under output/ by path, and the first problem, if any; with a problem there are no files."""

    files: Mapping[str, bytes] = field(repr=False)
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link, for archives that are packed here."""

    target: str


class _Problem(Exception):
    """A bound is broken or an entry cannot be graded; ends a scan."""


# --- a folder on disk -----------------------------------------------------------------------------------
def scan_folder(root: Path, bounds: Bounds = Bounds()) -> Scan:
    """Scan root/output. Raises OSError only when `root` itself cannot be opened."""
    files: dict[str, bytes] = {}
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            handle = os.open(_FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
        except FileNotFoundError:
            return Scan({})
        except OSError as error:
            return Scan({}, f"{_FOLDER} is no folder ({error.strerror})")
        try:
            _Walk(bounds, files).folder(handle, _FOLDER, 1)
        finally:
            os.close(handle)
    except _Problem as problem:
        return Scan({}, str(problem))
    finally:
        os.close(top)
    return Scan(files)


class _Walk:
    """One walk through a folder, with what is left of the bounds."""

    def __init__(self, bounds: Bounds, files: dict[str, bytes]) -> None:
        self.bounds, self.files = bounds, files
        self.entries, self.bytes = 0, 0

    def folder(self, handle: int, path: str, depth: int) -> None:
        if depth > self.bounds.depth:
            raise _Problem(f"folders are nested more than {self.bounds.depth} deep")
        with os.scandir(handle) as found:
            for entry in found:
                self.entries += 1
                if self.entries > self.bounds.entries:
                    raise _Problem(f"more than {self.bounds.entries} entries")
                self._entry(handle, entry.name, f"{path}/{entry.name}", depth)

    def _entry(self, handle: int, name: str, path: str, depth: int) -> None:
        _check_name(path, self.bounds)
        try:
            kind = os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode
            if stat.S_ISDIR(kind):
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
                try:
                    self.folder(inner, path, depth + 1)
                finally:
                    os.close(inner)
            elif stat.S_ISREG(kind):
                self.files[path] = self._content(handle, name, path)
            else:
                raise _Problem(f"{path} is {'a link' if stat.S_ISLNK(kind) else 'no regular file'}")
        except OSError as error:
            raise _Problem(f"{path} cannot be read ({error.strerror})") from error

    def _content(self, handle: int, name: str, path: str) -> bytes:
        """Read a file that is still the regular file it was, whole and no more than it said it holds."""
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=handle)
        with open(opened, "rb", buffering=0) as source:
            before = os.fstat(opened)
            if not stat.S_ISREG(before.st_mode):
                raise _Problem(f"{path} changed into something else while it was read")
            self.bytes += before.st_size
            if self.bytes > self.bounds.total_bytes:
                raise _Problem(f"more than {self.bounds.total_bytes} bytes, at {path}")
            parts, size = [], 0
            while size <= before.st_size and (part := source.read(1 << 20)):
                parts.append(part[: before.st_size + 1 - size])
                size += len(parts[-1])
            after = os.fstat(opened)
        if (
            size != before.st_size
            or after.st_mtime_ns != before.st_mtime_ns
            or after.st_size != before.st_size
        ):
            raise _Problem(f"{path} changed while it was read")
        return b"".join(parts)


def _check_name(path: str, bounds: Bounds) -> None:
    if len(path) > bounds.path_length:
        raise _Problem(f"a path has {len(path)} characters; at most {bounds.path_length} are read")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise _Problem(f"the name {path!r} is no UTF-8") from None


# --- an archive, as the sandbox gives a workspace back ---------------------------------------------------
def scan_archive(data: bytes, bounds: Bounds = Bounds()) -> Scan:
    """Scan the members under output/ of a tar archive; of two with one name the later counts, as on unpacking."""
    files: dict[str, bytes] = {}
    entries, total = 0, 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                if not _within(member.name):
                    continue
                entries += 1
                if entries > bounds.entries:
                    raise _Problem(f"more than {bounds.entries} entries")
                _check_name(member.name, bounds)
                parts = member.name.split("/")
                if ".." in parts or "." in parts or "" in parts:
                    raise _Problem(f"{member.name!r} leads out of {OUTPUT} or around in it")
                if len(parts) - 1 > bounds.depth:
                    raise _Problem(f"folders are nested more than {bounds.depth} deep")
                if member.isdir():
                    continue
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
                    raise _Problem(f"{member.name} is {'a link' if member.issym() else 'no regular file'}")
                total += member.size
                if total > bounds.total_bytes:
                    raise _Problem(f"more than {bounds.total_bytes} bytes, at {member.name}")
                source = archive.extractfile(member)
                assert source is not None
                files[member.name] = source.read()
    except _Problem as problem:
        return Scan({}, str(problem))
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        return Scan({}, f"the workspace cannot be read ({type(error).__name__}: {error})")
    return Scan(files)


def _within(name: str) -> bool:
    """Say whether a member is in output/, or claims to be on some way or other."""
    return name.split("/")[0] == _FOLDER or os.path.normpath(name).lstrip("/").split("/")[0] == _FOLDER


def pack(entries: Mapping[str, bytes | Link]) -> bytes:
    """Return a tar archive of files and links, names as they are given; equal entries give equal bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted(entries):
            content, info = entries[name], tarfile.TarInfo(name)
            if isinstance(content, Link):
                info.type, info.linkname = tarfile.SYMTYPE, content.target
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return out.getvalue()
