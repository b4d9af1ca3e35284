"""The largest buffers that the kernel grants a socket, by the kernel's own answer."""

import socket

import pytest
from trimtab_api.socket_buffers import largest_buffer


@pytest.mark.parametrize("option", [socket.SO_SNDBUF, socket.SO_RCVBUF])
def test_the_kernel_grants_the_largest_buffer_and_no_more(option):
    largest = largest_buffer(option)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, option, largest)
        granted = connection.getsockopt(socket.SOL_SOCKET, option)
        connection.setsockopt(socket.SOL_SOCKET, option, 2 * largest)
        assert connection.getsockopt(socket.SOL_SOCKET, option) == granted == 2 * largest
