"""The places of object stores: conditional writes, listings, URLs, and what a store that is away says."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from object_stores import SERVERS, Azure, Server
from obstore.store import MemoryStore

from sweep.errors import InputError, StoreAway
from sweep.store.features import is_url, store_of
from sweep.store.object_store import ObjectStore, check_url, mark_as_copy


@pytest.fixture(params=["memory", *SERVERS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return ObjectStore(f"memory://bucket/{tmp_path.name}", MemoryStore())
    server: Server = request.getfixturevalue(request.param)
    empty = ObjectStore(f"{server.bucket}/{tmp_path.name}")
    empty.put("made", b"")
    empty.delete(["made"])
    return empty


def test_what_is_put_is_got_listed_and_deleted(store: ObjectStore) -> None:
    assert store.get("a/b") is None
    store.put("a/b", b"one")
    store.put("a/c", b"two")
    store.put("z", b"three")
    assert store.get("a/b") is not None
    assert store.get_all(["a/b", "nothing", "z"]) == [b"one", None, b"three"]
    assert [(entry.key, entry.size) for entry in store.entries()] == [
        ("a/b", 3),
        ("a/c", 3),
        ("z", 5),
    ]
    names, entries = store.folder()
    assert (names, [entry.key for entry in entries]) == (["a"], ["z"])
    below = store.below("a")
    assert [entry.key for entry in below.entries()] == ["b", "c"]
    below.put("b", b"other")
    found = store.get("a/b")
    assert found is not None
    assert found[0] == b"other"
    store.delete(["a/b", "not there", "z"])
    assert [entry.key for entry in store.entries()] == ["a/c"]


def test_a_swap_needs_what_was_read(store: ObjectStore) -> None:
    first = store.swap("lease", b"mine", None)
    assert first
    assert store.swap("lease", b"theirs", None) is None
    assert store.swap("lease", b"mine", None) == first  # an attempt whose answer was lost
    second = store.swap("lease", b"mine again", first)
    assert second not in (None, first)
    assert store.swap("lease", b"theirs", first) is None
    assert store.get("lease") == (b"mine again", second)


def test_of_many_who_create_one_wins(server: Server) -> None:
    store = ObjectStore(f"{server.bucket}/race")
    store.put("made", b"")
    with ThreadPoolExecutor(16) as pool:
        for turn in range(5):
            won = list(
                pool.map(lambda n, turn=turn: store.swap(f"one/{turn}", b"%d" % n, None), range(16))
            )
            assert sum(tag is not None for tag in won) == 1


def test_files_go_there_and_back(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    contents = {"a": b"x" * 6_000_000, "b": b""}
    for name, content in contents.items():
        (tmp_path / "here" / name).write_bytes(content)
    store.upload((tmp_path / "here" / name, f"deep/{name}") for name in contents)
    store.download((f"deep/{name}", tmp_path / "there" / "new" / name) for name in contents)
    assert {name: (tmp_path / "there" / "new" / name).read_bytes() for name in contents} == contents
    with pytest.raises(FileNotFoundError):
        store.download([("deep/c", tmp_path / "c")])


def test_a_store_travels_without_its_secret(server: Server) -> None:
    store = ObjectStore(f"{server.bucket}/x")
    store.put("y", b"z")
    data = pickle.dumps(store)
    assert server.secret.encode() not in data
    assert server.secret not in repr(store)
    assert pickle.loads(data).get("y") is not None


def test_what_is_wrong_with_a_store_is_one_line(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = server.bucket.partition("://")[0]
    none = ObjectStore(f"{scheme}://no-bucket-here/x")
    asks: list[Callable[[], object]] = [
        none.entries,
        none.folder,
        lambda: none.get("y"),
        lambda: none.download([("y", tmp_path / "y")]),
    ]
    if isinstance(server, Azure):  # the other one makes the bucket
        asks += [lambda: none.put("y", b""), lambda: none.swap("y", b"", None)]
        with pytest.raises(
            StoreAway, match=r"^az://No_Name/x: 400 Bad Request \(InvalidResourceName\)$"
        ):
            ObjectStore("az://No_Name/x").put("y", b"")
    for ask in asks:
        with pytest.raises(
            StoreAway, match=rf"^{scheme}://no-bucket-here/x: there is no such bucket$"
        ):
            ask()
    monkeypatch.setenv(server.secret_name, "d3Jvbmc=")
    with pytest.raises(
        StoreAway, match=rf"^{scheme}://other/x: .* \(credentials come from the environment"
    ):
        ObjectStore(f"{scheme}://other/x").get("y")
    monkeypatch.setenv(server.address_name, "http://127.0.0.1:9")
    with pytest.raises(StoreAway, match=rf"^{scheme}://gone/x: cannot be reached$"):
        ObjectStore(f"{scheme}://gone/x").get("403")  # a key that says so
    with pytest.raises(StoreAway, match=r"/long: cannot be reached$"):
        ObjectStore(f"{scheme}://gone/{'x' * 300}/long").entries()


def test_an_account_that_is_not_named_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(
        StoreAway, match=r"^az://container: no account is named: set AZURE_STORAGE_ACCOUNT_NAME$"
    ):
        ObjectStore("az://container/x").get("y")


@pytest.mark.parametrize(
    ("url", "known"),
    [
        ("s3://bucket", "s3://bucket"),
        ("S3://bucket//a/b/", "s3://bucket/a/b"),
        ("az://container/x", "az://container/x"),
        ("gs://bucket/x", "gs://bucket/x"),
    ],
)
def test_urls_are_written_one_way(url: str, known: str) -> None:
    assert is_url(url)
    assert check_url("--results", url) == known


@pytest.mark.parametrize(
    "url", ["ftp://host/x", "s3://", "s3:///x", "s3://b/../c", "s3://b/x?y=1", "file:///tmp/x"]
)
def test_other_urls_are_mistakes(url: str) -> None:
    with pytest.raises(InputError, match="--results: "):
        check_url("--results", url)


def test_a_folder_stands_for_a_place(tmp_path: Path) -> None:
    assert store_of(tmp_path) is None
    assert not is_url(tmp_path)
    mark_as_copy(tmp_path / "copy", ObjectStore("s3://bucket/x"))
    assert store_of(tmp_path / "copy") == ObjectStore("s3://bucket/x")
