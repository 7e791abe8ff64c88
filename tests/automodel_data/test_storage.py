"""Paths are opened, listed and contained, on local disks and through ``pyarrow.fs``."""

import concurrent.futures
import multiprocessing as mp
from pathlib import Path

import pytest
from pyarrow import fs

from automodel_data.errors import DataError
from automodel_data.storage import contained_path, is_uri, join, list_files, read_bytes, resolve


@pytest.fixture(params=["path", "uri"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a directory, named both ways, of three files and a folder; names as people give them."""
    for name in ("b.parquet", "a 1%20.parquet", "notes.txt"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "c.parquet").mkdir()
    return str(tmp_path) if request.param == "path" else f"file://{tmp_path}"


def test_files_are_listed_by_name_without_folders(root: str) -> None:
    assert list_files(root, ".parquet") == [f"{root}/a 1%20.parquet", f"{root}/b.parquet"]
    assert len(list_files(f"{root}/")) == 3


def test_a_listed_file_can_be_read(root: str) -> None:
    assert [read_bytes(path) for path in list_files(root, ".parquet")] == [b"a 1%20.parquet", b"b.parquet"]


def test_a_missing_file_is_an_os_error(root: str) -> None:
    with pytest.raises(OSError, match="none"):
        read_bytes(f"{root}/none")


@pytest.mark.parametrize("name", ["none", "notes.txt"])
def test_listing_what_is_no_directory_is_refused_with_its_name(root: str, name: str) -> None:
    with pytest.raises(DataError, match=f"{name}' is not a directory"):
        list_files(f"{root}/{name}")


def test_an_unknown_scheme_is_refused_with_the_path() -> None:
    with pytest.raises(DataError, match="gopher://host/x"):
        read_bytes("gopher://host/x")


def test_a_filesystem_is_opened_once_for_all_paths_of_its_scheme_and_authority(tmp_path: Path) -> None:
    first, second = resolve(f"file://{tmp_path}/a"), resolve("file:///elsewhere/b")
    assert first[0] is second[0]
    assert (first[1], second[1]) == (f"{tmp_path}/a", "/elsewhere/b")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_process_opens_its_own_filesystem(method: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    path = f"file://{tmp_path}/a"
    inherited = resolve(path)[0]
    context = mp.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(read_bytes, path).result() == b"content"
    assert resolve(path)[0] is inherited
    if method == "fork":
        answers = context.SimpleQueue()
        worker = context.Process(target=lambda: answers.put(resolve(path)[0] is inherited))
        worker.start()
        worker.join()
        assert answers.get() is False


def test_only_a_scheme_at_the_start_makes_a_uri() -> None:
    assert [is_uri(path) for path in ("s3://b/k", "file:///x", "dir/http://x", "/a/b", "c:d", "")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert isinstance(resolve("dir/http://x")[0], fs.LocalFileSystem)


@pytest.mark.parametrize(
    ("directory", "name", "joined"),
    [
        ("/data", "a/b.jpg", "/data/a/b.jpg"),
        ("/data/", "b.jpg", "/data/b.jpg"),
        ("s3://bucket/x", "b.jpg", "s3://bucket/x/b.jpg"),
        ("/data", "/elsewhere/b.jpg", "/elsewhere/b.jpg"),
        ("/data", "gs://bucket/b.jpg", "gs://bucket/b.jpg"),
    ],
)
def test_a_name_is_looked_for_in_its_directory_unless_it_is_complete(directory: str, name: str, joined: str) -> None:
    assert join(directory, name) == joined


def test_a_path_inside_the_root_is_resolved(tmp_path: Path) -> None:
    assert contained_path(tmp_path, "a/../b.pt", "cache_file") == tmp_path.resolve() / "b.pt"


def test_a_path_that_leaves_the_root_is_refused_with_its_field(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link").symlink_to(tmp_path)
    for value in ("../x.pt", "/etc/passwd", "link/x.pt"):
        with pytest.raises(DataError, match=r"cache_file.*lies outside"):
            contained_path(tmp_path / "inside", value, "cache_file")
