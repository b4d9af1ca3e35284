"""Files that a command is given: one without an end, or too large, is refused before it is read."""

import pytest
from trimtab_api.errors import UserError
from trimtab_api.input_files import MAX_TEXT_BYTES, read_bytes, read_text
from trimtab_api.trainingjob import load_training_job
from trimtab_netmon.emulate import load_network


@pytest.mark.parametrize("load", [load_training_job, load_network])
def test_a_file_without_an_end_is_refused_by_its_size(load):
    with pytest.raises(UserError) as error:
        load("/dev/zero")
    assert str(error.value) == "/dev/zero: has more than 500kB, the most that is read; name another file"


def test_a_file_of_the_largest_size_is_read(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x" * MAX_TEXT_BYTES)
    assert len(read_text(file, "text")) == MAX_TEXT_BYTES
    file.write_bytes(b"x" * (MAX_TEXT_BYTES + 1))
    with pytest.raises(UserError, match="has more than 500kB"):
        read_text(file, "text")
    assert len(read_bytes(file)) == MAX_TEXT_BYTES + 1


def test_what_is_no_text_is_told_apart_from_what_is_not_there(tmp_path):
    file = tmp_path / "file"
    with pytest.raises(UserError, match=r"cannot be read \(No such file or directory\); check the path"):
        read_text(file, "a network")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="is not a text file; write a network in YAML"):
        read_text(file, "a network")
