"""Signatures with Ed25519, which a receiver verifies and cannot make."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from click.testing import CliRunner
from cryptography.exceptions import InvalidSignature

from dockbell.cli import main
from dockbell.config import Secret
from dockbell.core.model import OutcomeKind
from dockbell.core.publishing.signature import Finding, parse_secret, verify
from dockbell.errors import ConfigError
from dockbell.sinks.webhook import signing_key
from dockbell.sinks.webhook.signing_key import SigningKey
from tests.sinks.conftest import make_delivery, running
from tests.sinks.receiver import OK, SECRET, make_sink, receiving

PRIVATE: Final = signing_key.mint(bytes(range(32)))
GUIDE: Final = Path(__file__).parents[3] / "docs" / "how-to" / "verify-webhooks.md"
Verify: TypeAlias = Callable[[str, Mapping[str, str], bytes], None]


@pytest.fixture
def documented() -> Verify:
    """Return the verification as the guide shows it."""
    (block,) = re.findall(r"```python\n(import base64\n.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)  # noqa: S102  # our own document
    found: Verify = names["verify"]
    return found


async def test_a_request_bears_both_signatures_and_each_is_genuine(documented: Verify) -> None:
    async with receiving(OK) as receiver, running(make_sink(receiver.url, signing_key=PRIVATE)) as run:
        run.deliver(make_delivery())
        await run.until_settled(1)
    assert run.fates == [OutcomeKind.DELIVERED]
    (request,) = receiver.requests
    public = SigningKey(PRIVATE).public
    documented(public, request.headers, request.body)
    with pytest.raises(InvalidSignature):
        documented(public, request.headers, request.body + b" ")
    with pytest.raises(InvalidSignature):
        documented(SigningKey(signing_key.mint(b"o" * 32)).public, request.headers, request.body)
    sent_at = request.headers["webhook-timestamp"]
    signatures = request.headers["webhook-signature"]
    assert [each.partition(",")[0] for each in signatures.split(" ")] == ["v1", "v1a"]
    finding = verify(
        [parse_secret(SECRET)], request.headers["webhook-id"], sent_at, signatures, request.body, now=int(sent_at)
    )
    assert finding is Finding.GENUINE


def test_it_is_that_of_the_standard_for_ed25519() -> None:
    # RFC 8032, 7.1, test 1: the key pair
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    public = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    whole = "whsk_" + base64.b64encode(seed + public).decode()
    for text in (signing_key.mint(seed), whole, f" {whole.rstrip('=')}\n"):
        assert SigningKey(text).public == "whpk_" + base64.b64encode(public).decode()


@pytest.mark.parametrize("text", ["whsk_", "whsk_!", PRIVATE.replace("whsk_", "whsec_"), "whsk_AAAA"])
def test_what_is_no_key_is_told_at_the_start_and_not_shown(text: str) -> None:
    told = r'^\[sinks.erp\] signing_key: .*must be whsk_ followed by base64 .*make one with "dockbell secret --ed25519"'
    with pytest.raises(ConfigError, match=told) as error:
        make_sink("https://erp.example.com", signing_key=Secret(value=text))
    assert "AAAA" not in str(error.value)


def test_without_the_library_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing_key, "find_spec", lambda _: None)
    told = r"^\[sinks.erp\] signing_key: cryptography is not installed; pip install 'dockbell\[ed25519\]'"
    with pytest.raises(ConfigError, match=told):
        make_sink("https://erp.example.com", signing_key=PRIVATE)


def test_the_command_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing_key, "find_spec", lambda _: None)
    result = CliRunner().invoke(main, ["secret", "--ed25519"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: cryptography is not installed; pip install 'dockbell[ed25519]'\n"


def test_a_command_makes_a_key_and_shows_its_public_half() -> None:
    result = CliRunner().invoke(main, ["secret", "--ed25519"])
    key = result.stdout.strip()
    assert result.exit_code == 0
    assert result.stderr == f"public key for the receiver: {SigningKey(key).public}\n"
