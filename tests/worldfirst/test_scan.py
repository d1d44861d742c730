"""Hostile workspaces: bounded, never written to, refused with a reason; the same for folders and archives."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.worldfirst import scan
from truthfirst.worldfirst.grading import grade
from truthfirst.worldfirst.scan import Bounds, Link, pack, scan_archive, scan_folder


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "output" / "deep").mkdir(parents=True)
    (tmp_path / "output" / "a.csv").write_bytes(b"x,y\n")
    (tmp_path / "output" / "deep" / "b.json").write_bytes(b"{}")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_bytes(b"truth")
    return tmp_path / "output"


def listed(root: Path) -> list[tuple[str, int, int]]:
    return [(str(path), path.lstat().st_size, path.lstat().st_mtime_ns) for path in sorted(root.rglob("*"))]


def test_plain_files_are_read_and_nothing_else(output):
    before = listed(output.parent)
    found = scan_folder(output.parent)
    assert found.problem is None
    assert found.files == {"output/a.csv": b"x,y\n", "output/deep/b.json": b"{}"}
    assert listed(output.parent) == before
    assert scan_folder(output.parent / "elsewhere") == scan.Scan({})


def links(output: Path) -> None:
    (output / "l").symlink_to(output.parent / "elsewhere" / "secret")


def linked_folder(output: Path) -> None:
    (output / "l").symlink_to(output.parent / "elsewhere")


def pipe(output: Path) -> None:
    os.mkfifo(output / "p")


def device(output: Path) -> None:
    try:
        os.mknod(output / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root may make a device")


def sparse(output: Path) -> None:
    with open(output / "big.csv", "wb") as out:
        out.truncate(10 << 30)


def many(output: Path) -> None:
    for number in range(2_500):
        (output / str(number)).touch()


def nested(output: Path) -> None:
    (output / "/".join("d" * 40)).mkdir(parents=True)


def foreign_name(output: Path) -> None:
    (Path(os.fsdecode(os.fsencode(output) + b"/\xff\xfe"))).touch()


def unreadable(output: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (output / "a.csv").chmod(0)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (links, "is a link"),
        (linked_folder, "is a link"),
        (pipe, "no regular file"),
        (device, "no regular file"),
        (sparse, "more than 16777216 bytes"),
        (many, "more than 1000 entries"),
        (nested, "nested more than 8 deep"),
        (foreign_name, "no UTF-8"),
        (unreadable, "cannot be read"),
    ],
)
def test_what_cannot_be_graded_is_refused_with_a_reason(output, damage, reason, made):
    damage(output)
    before = listed(output)
    begin = time.process_time()
    found = scan_folder(output.parent)
    assert time.process_time() - begin < 1.0
    assert reason in (found.problem or "")
    assert found.files == {}
    assert listed(output) == before
    graded = grade(made(), found)
    assert (graded.passed, graded.potential, graded.reasons) == (False, 0, (found.problem,))


def test_an_output_that_is_a_link_or_a_file_is_no_folder(output):
    os.rename(output, output.parent / "moved")
    output.symlink_to("moved")
    assert "no folder" in (scan_folder(output.parent).problem or "")
    output.unlink()
    output.write_text("x")
    assert "no folder" in (scan_folder(output.parent).problem or "")
    output.unlink()
    os.mkfifo(output)
    assert "no folder" in (scan_folder(output.parent).problem or "")


def test_a_file_swapped_for_a_link_before_it_is_opened(output, monkeypatch):
    real = os.open

    def swap(path, flags, *args, **kwargs):
        if path == "a.csv":
            (output / "a.csv").unlink()
            (output / "a.csv").symlink_to(output.parent / "elsewhere" / "secret")
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(scan.os, "open", swap)
    found = scan_folder(output.parent)
    assert "cannot be read" in (found.problem or "")
    assert b"truth" not in found.files.values()


@pytest.mark.parametrize("change", ["grow", "shrink", "rewrite"])
def test_a_file_that_changes_while_it_is_read(output, monkeypatch, change):
    real, seen = os.fstat, []

    def late(handle):
        told = real(handle)
        if stat.S_ISREG(told.st_mode) and not seen:
            seen.append(handle)
            name = Path(os.readlink(f"/proc/self/fd/{handle}"))
            data = name.read_bytes()
            name.write_bytes(
                {"grow": data + b"more", "shrink": data[:-1], "rewrite": b"?" * len(data)}[change]
            )
            os.utime(name, ns=(1, 1))
        return told

    monkeypatch.setattr(scan.os, "fstat", late)
    assert "changed while it was read" in (scan_folder(output.parent).problem or "")


def test_bounds_are_exact():
    files = {f"output/{number}": b"12345" for number in range(4)}
    data = pack(files)
    assert scan_archive(data, Bounds(entries=4, total_bytes=20)).files == files
    assert "entries" in (scan_archive(data, Bounds(entries=3, total_bytes=20)).problem or "")
    assert "bytes" in (scan_archive(data, Bounds(entries=4, total_bytes=19)).problem or "")
    assert "characters" in (scan_archive(data, Bounds(path_length=7)).problem or "")


def test_folders_and_archives_agree(output):
    files = scan_folder(output.parent).files
    assert scan_archive(pack(dict(files))).files == files
    assert pack(dict(files)) == pack(dict(reversed(files.items())))


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        if kind == tarfile.REGTYPE:
            info.size = size
        archive.addfile(info, io.BytesIO(bytes(size)) if kind == tarfile.REGTYPE else None)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (member("output/x", tarfile.SYMTYPE, link="/etc/passwd"), "is a link"),
        (member("output/x", tarfile.LNKTYPE, link="input/a"), "no regular file"),
        (member("output/x", tarfile.CHRTYPE), "no regular file"),
        (member("output/x", tarfile.FIFOTYPE), "no regular file"),
        (member("output", tarfile.SYMTYPE, link="input"), "is a link"),
        (member("output/../x"), "leads out"),
        (member("a/../output/x"), "leads out"),
        (member("/output/x"), "leads out"),
        (member("./output/x"), "leads out"),
        (member("output/x", size=(16 << 20) + 1), "more than 16777216 bytes"),
        (b"no archive at all" * 100, "cannot be read"),
        (member("output/x", size=5_000)[:2_000], "cannot be read"),
    ],
)
def test_hostile_archives(data, reason):
    assert reason in (scan_archive(data).problem or "")


def test_what_is_outside_of_output_does_not_matter():
    entries = {"link": Link("/etc/passwd"), "input/x": b"1", "output.txt": b"2", "output/a": b"3"}
    assert scan_archive(pack(entries)) == scan.Scan({"output/a": b"3"})


@given(st.data())
def test_a_damaged_archive_never_raises(data):
    good = bytearray(pack({"output/a": b"x" * 700, "output/b/c": b"y", "output/l": Link("a")}))
    for _ in range(data.draw(st.integers(1, 6))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    scan_archive(bytes(good))
