"""Traffic like training's: in each step every host sends to the next and waits for the previous, then all compute.

Run as ``synchronous_traffic.py MY_ADDRESS NEXT_ADDRESS BYTES_PER_STEP PAUSE_SECONDS`` on every host.
"""

import socket
import sys
import threading
import time

PORT = 7100


def connect(address):
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=5)
        except OSError:
            time.sleep(0.1)


def receive(connection, num_bytes):
    while num_bytes:
        received = len(connection.recv(min(num_bytes, 1 << 20)))
        if not received:
            sys.exit()
        num_bytes -= received


def main(mine, following, num_bytes, pause):
    server = socket.create_server((mine, PORT))
    outgoing = connect(following)
    outgoing.settimeout(None)
    incoming, _ = server.accept()
    step = bytes(num_bytes)
    while True:
        sender = threading.Thread(target=outgoing.sendall, args=(step,), daemon=True)
        sender.start()
        receive(incoming, num_bytes)
        sender.join()
        time.sleep(pause)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
