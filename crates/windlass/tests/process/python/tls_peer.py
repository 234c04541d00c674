"""A TLS client or server that reads the files of a host projection again for every connection.

    tls_peer.py client DIRECTORY PORT=NAME...
    tls_peer.py server DIRECTORY

The client connects to the servers in turn and prints a line per connection, until its standard input ends. The server
prints its port, and then a line per failed connection.
"""

import os
import select
import socket
import ssl
import sys
import time

TIMEOUT = 60


def load(protocol, directory):
    while True:
        generation = os.path.join(directory, os.readlink(os.path.join(directory, "..data")))
        context = ssl.SSLContext(protocol)
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(os.path.join(generation, "ca.pem"))
            context.load_cert_chain(os.path.join(generation, "web.pem"))
            return context
        except FileNotFoundError:
            # The files were replaced; there are newer ones.
            continue


def connect(directory, port, name):
    context = load(ssl.PROTOCOL_TLS_CLIENT, directory)
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as plain:
        with context.wrap_socket(plain, server_hostname=name) as stream:
            stream.sendall(b"hi\n")
            answer = stream.recv(100)
            if answer != b"served\n":
                raise ValueError(f"the answer is {answer!r}")


def run_client(directory, servers):
    pairs = [server.split("=") for server in servers]
    while True:
        for port, name in pairs:
            if select.select([sys.stdin], [], [], 0)[0]:
                return
            try:
                connect(directory, int(port), name)
                print("ok", flush=True)
            except (OSError, ValueError) as error:
                print(f"failed: {name}: {error}", flush=True)
            time.sleep(0.02)


def run_server(directory):
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    while True:
        plain, _ = listener.accept()
        plain.settimeout(TIMEOUT)
        try:
            context = load(ssl.PROTOCOL_TLS_SERVER, directory)
            with context.wrap_socket(plain, server_side=True) as stream:
                stream.recv(100)
                stream.sendall(b"served\n")
        except OSError as error:
            print(f"failed: {error}", flush=True)


if sys.argv[1] == "client":
    run_client(sys.argv[2], sys.argv[3:])
else:
    run_server(sys.argv[2])
