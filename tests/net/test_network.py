from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import threading

import pytest

from dockbell.net.network import explain, find_cause


def caused(error: Exception, *causes: BaseException) -> Exception:
    inner: BaseException = error
    for cause in causes:
        inner.__cause__ = cause
        inner = cause
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9)"), "connection refused"),
        (OSError("Something else"), "something else"),
        (socket.gaierror(-2, "Name or service not known"), "host name not found"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1)"), "TLS, "),
        (TimeoutError(), "no answer in time"),
        (caused(RuntimeError("gone"), TimeoutError(), asyncio.CancelledError("deadline")), "no answer in time"),
        (ValueError("Host is invalid."), "host is invalid"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 1000), "x" * 200),
        (ValueError("407 Basic dXNlcjpzZWNyZXQ="), "407 Proxy Authentication Required"),
        (ValueError("599 Basic dXNlcjpzZWNyZXQ="), "599"),
        (ValueError("illegal status line: bytearray(b'Basic dXNlcjpzZWNyZXQ=')"), "illegal status line"),
        (
            caused(RuntimeError("all failed"), OSError("all failed"), ConnectionResetError(104, "")),
            "connection reset by",
        ),
    ],
)
def test_an_error_is_told_in_a_few_words(error: Exception, words: str) -> None:
    assert explain(error).startswith(words)
    assert len(explain(error)) <= 200
    assert "Basic" not in explain(error)


def test_of_several_attempts_the_first_is_told() -> None:
    first = ConnectionRefusedError(errno.ECONNREFUSED, "no")
    assert find_cause(caused(OSError("all failed"), ExceptionGroup("", [first, OSError("other")]))) is first


def test_tls_with_a_server_that_speaks_none_says_what_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1024)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        with socket.create_connection(listener.getsockname()) as plain, pytest.raises(ssl.SSLError) as caught:
            ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")
        answering.join()
    assert explain(caught.value) == (
        "the server does not use TLS on this port; check the port, or use a URL without TLS"
    )


def test_an_error_that_is_its_own_context_has_a_cause_all_the_same() -> None:
    first, second = ConnectionResetError(errno.ECONNRESET, "reset"), RuntimeError("gone")
    first.__context__, second.__context__ = second, first  # a library that raised the first again, handling the second
    assert explain(first) == "gone"
