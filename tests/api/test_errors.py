"""The one line that a user's mistake gets."""

from trimtab_api.errors import UserError


def test_it_names_file_field_value_and_remedy():
    error = UserError("write a number", field="spec.workers", value="x").in_file("job.yaml")
    assert str(error) == "job.yaml: spec.workers: 'x': write a number"


def test_whatever_a_name_holds_it_stays_one_line():
    said = str(UserError("mend it", field="a\nb\x1b[31m", value="c\nd", file="e\rf"))
    assert said == "e\\rf: a\\nb\\x1b[31m: 'c\\nd': mend it"


def test_a_long_value_is_cut():
    assert str(UserError("shorten it", value="9" * 400)) == f"'{'9' * 160}...': shorten it"
