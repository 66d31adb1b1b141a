"""Sends and receives the messages between a command and its keeper, over a local socket.

The command sends a request: its length together with three open files, then JSON. The keeper answers in lines of JSON.
While the command runs, each further byte from it is the number of a signal.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

_LENGTH = struct.Struct("!I")
_PEER = struct.Struct("3i")  # process, user and group
_STREAMS = 3
_LARGEST = 64 * 1024 * 1024  # bytes of a request's JSON


def send_request(
    connection: socket.socket, request: dict[str, Any], streams: Sequence[int]
) -> None:
    """Send ``request`` as JSON, together with ``streams``: the descriptors of standard input, output and error.

    The descriptors stay open here. Raises OSError if the connection is closed, and TypeError if the request is not of
    JSON types.
    """
    content = json.dumps(request).encode()
    socket.send_fds(connection, [_LENGTH.pack(len(content))], streams)
    connection.sendall(content)


def receive_request(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Receive a request; return it with the file descriptors of its three streams, which the caller must close.

    Return None if the request is incomplete, larger than 64 MiB or not a JSON object, or comes with fewer than three
    streams. Raises OSError if the connection is lost or its timeout is over. In all these cases, the streams are
    closed.
    """
    head, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, _STREAMS)
    with ExitStack() as open_streams:  # closes them unless the request is returned
        for stream in streams:
            open_streams.callback(os.close, stream)
        if len(head) != _LENGTH.size:
            return None
        size = _LENGTH.unpack(head)[0]
        if size > _LARGEST:
            return None
        content = _receive(connection, size)
        if len(content) != size:
            return None
        try:
            request = json.loads(content)
        except ValueError:
            return None
        if len(streams) != _STREAMS or not isinstance(request, dict):
            return None
        open_streams.pop_all()  # the caller closes them
        return request, streams


def _receive(connection: socket.socket, size: int) -> bytes:
    """Receive ``size`` bytes and return them; return fewer if the other end closes the connection before.

    Raises OSError if the connection is lost or its timeout is over.
    """
    parts = []
    while size and (part := connection.recv(min(size, 1 << 16))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def send_answer(connection: socket.socket, **answer: Any) -> None:
    """Send the keyword arguments as one line of JSON, the answer to a request. Raises OSError if nobody receives it."""
    connection.sendall(json.dumps(answer).encode() + b"\n")


def is_own(connection: socket.socket) -> bool:
    """Return whether the process at the other end of a socket runs as this user; True if the system cannot tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # nobody else can enter the folder of the socket
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(peer)[1] == os.getuid())
