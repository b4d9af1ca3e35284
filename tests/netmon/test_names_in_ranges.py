"""Names of many hosts in one word."""

import pytest
from trimtab_api.errors import UserError
from trimtab_netmon.settings import written_out


def test_a_range_of_numbers_is_one_name_for_each():
    assert list(written_out("a-{9..11}.a.team.svc:29400,b", "--peers")) == [
        "a-9.a.team.svc:29400",
        "a-10.a.team.svc:29400",
        "a-11.a.team.svc:29400",
        "b",
    ]


@pytest.mark.parametrize("name", ["a{2..1}", "a{0..100000}", "a{0..9999999}"])
def test_a_range_that_falls_or_is_too_long_is_refused(name):
    with pytest.raises(UserError, match="write a range that rises"):
        list(written_out(name, "--peers"))
