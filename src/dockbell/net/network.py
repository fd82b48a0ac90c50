"""What sources and sinks on the network share: whom they trust, and words for what goes wrong."""

from __future__ import annotations

import os
import re
import socket
import ssl
from http import HTTPStatus
from typing import Final

from dockbell.errors import ConfigError

_QUOTED: Final = re.compile(r": (?:bytearray\()?b['\"].*", re.DOTALL)
"""What h11 quotes of a response; the server may have quoted our request there, with its key."""
_STATUS_LINE: Final = re.compile(r"([1-5]\d\d)(?: .*)?", re.DOTALL)
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
_UNKNOWN_ISSUER: Final = (2, 18, 19, 20, 21)  # OpenSSL's X509_V_ERR_… of chains that end with an unknown issuer


def make_trust(
    subject: str, *, ca_file: str | None, cert_file: str | None = None, key_file: str | None = None
) -> ssl.SSLContext:
    """Return a context that verifies servers by ``ca_file``, else by the system's authorities; all files are PEM.

    The client certificate is ``cert_file``, its private key ``key_file`` where that does not hold it.

    Raises:
        ConfigError: A file cannot be used; the text begins with ``subject``.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(f"{subject}: cannot use ca_file, {explain(error)}, got {ca_file}") from error
    if cert_file:
        try:
            context.load_cert_chain(cert_file, key_file, _refuse_password)
        except OSError as error:
            files = f"{cert_file} and {key_file}" if key_file else cert_file
            raise ConfigError(f"{subject}: cannot use the client certificate, {explain(error)}, got {files}") from error
    return context


def _refuse_password() -> str:
    # Otherwise OpenSSL asks on the terminal, and waits.
    raise OSError("the key is encrypted, store it without a passphrase")


def explain(error: BaseException) -> str:
    """Say in a few words what lies behind an error: ``connection refused``."""
    match cause := find_cause(error):
        case ssl.SSLError():
            return _explain_tls(cause)
        case socket.gaierror():
            return "host name not found"
        case TimeoutError():
            return "no answer in time"
        case OSError():
            return (os.strerror(cause.errno) if cause.errno else str(cause)).lower()
    return _reword(str(cause)) or type(cause).__name__


def hint_at_tls(key: str) -> str:
    """Return what to look at where a server without TLS was asked and ended the connection without ever an answer.

    ``key`` is the key of the configuration that has the URL.
    """
    return f"; if it uses TLS on this port, {key} must begin with https:"


def _explain_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        words = error.verify_message.rstrip(".")
        remedy = "; set ca_file to the authority that signed it" if error.verify_code in _UNKNOWN_ISSUER else ""
        return f"certificate not accepted, {words[:1].lower()}{words[1:]}{remedy}"
    reason = getattr(error, "reason", None) or str(error)
    if reason == "WRONG_VERSION_NUMBER":
        return "the server does not use TLS on this port; check the port, or use a URL without TLS"
    return f"TLS, {reason.lower().replace('_', ' ')}"


def _reword(text: str) -> str:
    """Return what a library says of an error, without what it quotes of the other side."""
    text = _QUOTED.sub("", text).rstrip(".")
    if match := _STATUS_LINE.fullmatch(text):  # a proxy's refusal; it may say what it likes after the number
        return f"{match[1]} {_PHRASES.get(int(match[1]), '')}".rstrip()
    return text[:1].lower() + text[1:200]


def find_cause(error: BaseException) -> BaseException:
    """Return what an error began with; of several attempts' errors, the first."""
    met: set[int] = set()  # an error that a library raised again while it handled it can be its own context
    while True:
        met.add(id(error))
        # httpcore drops the cause of what it raises, the context stays; that of a timeout is a mere cancellation.
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__
        if not isinstance(inner, Exception) or id(inner) in met:
            return error
        error = inner
