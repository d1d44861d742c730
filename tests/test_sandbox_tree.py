"""Workspaces that outlive a run of the sandbox: what goes in, what comes back, and when nothing does."""

from __future__ import annotations

import io
import tarfile
import time

import pytest

from truthfirst.sandbox import Limits, Program, Result, available, run, tree_bytes

needs_sandbox = pytest.mark.skipif(not available(), reason=available().reason or "there is a sandbox")
pytestmark = needs_sandbox


def archive(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return out.getvalue()


def members(result: Result) -> dict[str, tarfile.TarInfo]:
    assert result.tree is not None, result
    with tarfile.open(fileobj=io.BytesIO(result.tree)) as made:
        return {member.name: member for member in made}


def content(result: Result, name: str) -> bytes:
    assert result.tree is not None
    with tarfile.open(fileobj=io.BytesIO(result.tree)) as made:
        source = made.extractfile(name)
        assert source is not None
        return source.read()


def bash(command: str, tree: bytes, **limits: float) -> Result:
    bounds = Limits(**{"wall_seconds": 60, **limits})  # type: ignore[arg-type]
    return run(Program(("/bin/bash", "-c", command), tree=tree, shell=True, limits=bounds))


START = archive({"input/a.txt": b"hello\n"})


def test_files_go_in_and_come_back_and_go_in_again():
    first = bash(
        "cat input/a.txt; mkdir -p o/p; printf '#!/bin/sh\\necho ran' > o/run; chmod 755 o/run; ln -s /etc/x o/l; "
        "mkfifo o/pipe; rm input/a.txt",
        START,
    )
    assert (first.stdout, first.exit_status, first.reason) == ("hello\n", 0, "exited")
    found = members(first)
    assert set(found) == {"input", "o", "o/p", "o/run", "o/l"}, "a pipe is no file"
    assert found["o/l"].linkname == "/etc/x"
    assert {member.mtime for member in found.values()} == {0}
    assert first.tree is not None
    second = bash("o/run; ls -A o input; chmod 000 o/run o; exit 3", first.tree)
    assert second.stdout == "ran\ninput:\n\no:\nl\np\nrun\n"
    assert second.exit_status == 3
    assert set(members(second)) == set(found), "a workspace without rights is read all the same"
    assert content(second, "o/run") == content(first, "o/run")


def test_equal_workspaces_have_equal_bytes():
    one = bash("echo b > b; sleep 0.01; echo a > a", START)
    other = bash("echo a > a; mkdir c; rmdir c; touch -d 2001-01-01 a; echo b > b", START)
    assert one.tree == other.tree is not None


def test_without_a_tree_nothing_comes_back():
    assert run(Program(("/bin/bash", "-c", "echo x > y"), shell=True)).tree is None


@pytest.mark.parametrize(
    ("command", "limits", "reason"),
    [
        ("echo x > y; while true; do sleep 1; done", {"wall_seconds": 2}, "wall"),
        ("echo x > y; while true; do :; done", {"processor_seconds": 1}, "processor"),
        ("echo x > y; yes", {"output_bytes": 100}, "output"),
    ],
)
def test_a_run_that_is_stopped_leaves_nothing(command, limits, reason):
    result = bash(command, START, **limits)
    assert (result.reason, result.tree) == (reason, None)


def test_what_is_too_large_does_not_come_back():
    small = {"workspace_bytes": 1 << 20, "file_bytes": 1 << 20}
    assert bash("truncate -s 900K a", START, **small).tree is not None
    assert bash("truncate -s 900K a; truncate -s 900K b", START, **small).tree is None, (
        "sparse, but as large as it says"
    )
    result = bash("truncate -s 10G a; echo $?", START)
    assert result.stdout == "1\n"
    assert result.tree is not None
    assert len(result.tree) <= tree_bytes(Limits())


def test_what_was_started_ends_before_the_workspace_is_read():
    begin = time.monotonic()
    result = bash("(sleep 300; echo late > late) & (while true; do date +%N > busy; done) & echo done", START)
    assert time.monotonic() - begin < 200
    assert result.stdout == "done\n"
    assert "late" not in members(result)


def test_a_million_files_end_at_the_bound():
    result = bash("for i in {1..300}; do : > f$i || break; done 2>/dev/null; ls | wc -l", START, files=100)
    assert int(result.stdout) <= 100
    assert len(members(result)) <= 100


def test_names_that_are_no_text_survive():
    first = bash("touch $'bad\\xff' ä", START)
    assert first.tree is not None
    assert bash("ls | cat -v", first.tree).stdout == "badM-^?\ninput\nM-CM-$\n"


def test_a_damaged_archive_is_an_error_of_the_caller():
    from truthfirst.sandbox import SandboxError

    with pytest.raises(SandboxError, match="did not start"):
        bash("true", b"no archive")
