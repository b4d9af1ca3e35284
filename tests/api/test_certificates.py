"""A job's certificates as files: who may read them, and which of them has expired."""

from datetime import timedelta

import pytest
from kit.certificates import DAY, Authority
from trimtab_api.errors import UserError
from trimtab_api.rpc.certificates import Certificates


@pytest.mark.parametrize("authority_days", [-1, 9])
@pytest.mark.parametrize("certificate_days", [-1, 9])
def test_the_first_file_that_has_expired_is_named(tmp_path, authority_days, certificate_days):
    authority = Authority.new(lifetime=authority_days * DAY)
    directory = authority.issue(tmp_path / "job", lifetime=certificate_days * DAY)
    expired = "ca.crt" if authority_days < 0 else "tls.crt" if certificate_days < 0 else None
    if expired is None:
        Certificates.read(directory)
        return
    with pytest.raises(UserError, match=f"job/{expired}': expired at "):
        Certificates.read(directory)


def test_a_certificate_that_is_not_valid_yet_is_named(tmp_path):
    directory = Authority.new().issue(tmp_path / "job", begin=timedelta(hours=1))
    with pytest.raises(UserError, match=r"job/tls\.crt': is valid from "):
        Certificates.read(directory)


def test_written_certificates_read_back_and_only_their_user_reads_them(tmp_path):
    certificates = Certificates.read(Authority.new().issue(tmp_path / "job"))
    (tmp_path / "written").mkdir()
    certificates.write(tmp_path / "written")
    assert Certificates.read(tmp_path / "written") == certificates
    assert {each.stat().st_mode & 0o777 for each in (tmp_path / "written").iterdir()} == {0o600}
