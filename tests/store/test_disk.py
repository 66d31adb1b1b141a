import pytest

from sweep.errors import StoreError
from sweep.store.disk import replacing, storing


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "table"
    path.write_text("old")
    with pytest.raises(ValueError, match="half"), replacing(path) as aside:
        raise ValueError(f"half {aside.write_text('half')}")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("table", "old")]
    with replacing(path) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("table", "new")]


def test_an_error_names_the_file_and_what_is_free(tmp_path):
    message = r"/x: No such file or directory \(the disk mounted at /\S* has [\d,]+ MB free\)"
    with pytest.raises(StoreError, match=message), storing(tmp_path / "x"):
        (tmp_path / "missing" / "x").touch()
