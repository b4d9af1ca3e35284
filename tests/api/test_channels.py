"""Who is served: whoever holds a valid certificate of the job; and what everyone else is told."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from kit.certificates import DAY, Authority
from trimtab_api.errors import UserError
from trimtab_api.rpc.certificates import Certificates
from trimtab_api.rpc.channels import SERVER_OPTIONS, format_grpc_error, listen, open_channel

METHOD = "/trimtab.tests.Echo/Say"


def read_unchecked(directory):
    """What somebody presents who does not care what `Certificates.read` says."""
    return Certificates(*((directory / file).read_bytes() for file in ("ca.crt", "tls.crt", "tls.key")))


@pytest.fixture(scope="module")
def job():
    return Authority.new()


@pytest.fixture(scope="module")
def stranger():
    return Authority.new("another authority")


@pytest.fixture
def serve():
    """Start a server with the certificates of a directory, or in plain text; returns its address."""
    servers = []

    def start(directory=None):
        server = grpc.server(ThreadPoolExecutor(2), options=SERVER_OPTIONS)
        handler = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("trimtab.tests.Echo", {"Say": handler})])
        port = listen(server, "127.0.0.1:0", None if directory is None else read_unchecked(directory))
        server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(None).wait()


def say(channel):
    with channel:
        return channel.unary_unary(METHOD)(b"hello", timeout=10)


def complaint(channel):
    with pytest.raises(grpc.RpcError) as caught:
        say(channel)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return format_grpc_error(caught.value)


def test_a_process_of_the_job_is_served(job, serve, tmp_path):
    address = serve(job.issue(tmp_path / "server"))
    assert say(open_channel(address, Certificates.read(job.issue(tmp_path / "client")))) == b"hello"


def test_the_environment_names_the_certificates_of_both_sides(job, serve, tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_TLS_DIR", str(job.issue(tmp_path / "tls")))
    address = serve()
    assert say(open_channel(address)) == b"hello"
    assert "hung up on a client without a valid certificate" in complaint(grpc.insecure_channel(address))


@pytest.mark.parametrize("variable", ["http_proxy", "https_proxy", "grpc_proxy"])
def test_no_proxy_stands_between_processes_of_a_job(serve, monkeypatch, variable):
    """gRPC would send even calls within this machine to a proxy of the environment."""
    address = serve()
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    for each in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(each, raising=False)
    assert say(open_channel(address)) == b"hello"


def test_a_client_without_a_certificate_is_refused(job, serve, tmp_path):
    address = serve(job.issue(tmp_path / "server"))
    credentials = grpc.ssl_channel_credentials((tmp_path / "server/ca.crt").read_bytes())
    told = complaint(grpc.secure_channel(address, credentials))
    assert told == (
        "the server hung up on a client without a valid certificate of its job; set TRIMTAB_TLS_DIR to this job's"
    )


def test_a_client_of_another_authority_is_refused(job, stranger, serve, tmp_path):
    address = serve(job.issue(tmp_path / "server"))
    theirs = read_unchecked(stranger.issue(tmp_path / "client"))
    told = complaint(open_channel(address, theirs))
    assert told == "the server's certificate is of another authority than this job's"
    trusting = Certificates((tmp_path / "server/ca.crt").read_bytes(), theirs.certificate, theirs.key)
    assert "hung up on a client without a valid certificate" in complaint(open_channel(address, trusting))


def test_a_client_whose_certificate_expired_is_refused(job, serve, tmp_path):
    address = serve(job.issue(tmp_path / "server"))
    expired = read_unchecked(job.issue(tmp_path / "client", lifetime=-DAY))
    assert "hung up on a client without a valid certificate" in complaint(open_channel(address, expired))


def test_a_server_whose_certificate_expired_is_not_trusted(job, serve, tmp_path):
    address = serve(job.issue(tmp_path / "server", lifetime=-DAY))
    told = complaint(open_channel(address, Certificates.read(job.issue(tmp_path / "client"))))
    assert told == "the server's certificate has expired; restart the job for a new one"


def test_a_server_with_another_name_is_not_trusted(job, serve, tmp_path):
    address = serve(job.issue(tmp_path / "server", names=("digits-0.digits.default.svc",)))
    told = complaint(open_channel(address, Certificates.read(job.issue(tmp_path / "client"))))
    assert told == "the server's certificate is for other host names than the one called"


def test_a_server_in_plain_text_is_not_trusted(job, serve, tmp_path):
    address = serve()
    told = complaint(open_channel(address, Certificates.read(job.issue(tmp_path / "client"))))
    assert told == "the server speaks plain text; set TRIMTAB_TLS_DIR where it is started"


@pytest.mark.parametrize("address", ["localhost:1", "127.0.0.1:1", "[::1]:1", "10.77.0.3:29400"])
def test_plain_text_is_spoken_on_this_machine(address):
    open_channel(address).close()


@pytest.mark.parametrize("address", ["10.0.0.1:1", "digits-0.digits.default.svc:29400", "0.0.0.0:29400"])
def test_plain_text_goes_nowhere_else(address):
    with pytest.raises(UserError) as caught:
        open_channel(address)
    assert str(caught.value) == (
        f"address: '{address}': is not an address of this machine, and plain text goes nowhere else; "
        "set TRIMTAB_TLS_DIR to a directory with certificates"
    )


def test_a_certificate_that_nobody_would_accept_is_named_before_anything_is_opened(job, stranger, tmp_path):
    directory = job.issue(tmp_path / "expired", lifetime=-DAY)
    with pytest.raises(
        UserError, match=r"TRIMTAB_TLS_DIR: '.*/expired/tls.crt': expired at \d{4}-.*; delete the job's"
    ):
        Certificates.read(directory)
    directory = job.issue(tmp_path / "mixed")
    (directory / "ca.crt").write_bytes((stranger.issue(tmp_path / "other") / "ca.crt").read_bytes())
    with pytest.raises(UserError, match=r"mixed/tls.crt': was not issued by the authority in ca.crt"):
        Certificates.read(directory)
    directory = job.issue(tmp_path / "swapped")
    (directory / "tls.key").write_bytes((tmp_path / "other/tls.key").read_bytes())
    with pytest.raises(UserError, match=r"swapped/tls.key': is not the key of tls.crt"):
        Certificates.read(directory)
    (directory / "tls.key").write_text("not a key")
    with pytest.raises(UserError, match=r"swapped/tls.key': is not PEM that can be read"):
        Certificates.read(directory)
    (directory / "tls.key").unlink()
    with pytest.raises(UserError, match=r"swapped/tls.key': cannot be read \(No such file or directory\); mount"):
        Certificates.read(directory)
