"""A configuration with secrets of every kind, each in every form that it may have."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SECRETS: Final = {
    "API key, by variable": "canary/api+variable=1",
    "API key, by file": "canary/api+file=2",
    "webhook secret": "Y2FuYXJ5LXdlYmhvb2stb25lLWNhbmFyeS0zMw==",
    "webhook secret, the next": "Y2FuYXJ5LXdlYmhvb2stdHdvLWNhbmFyeS00NA==",
    "webhook header": "canary/header+value=5",
    "webhook bearer": "canary/bearer+token=6",
    "webhook path": "canary-path-of-a-hook-7",
    "webhook query": "canary-query-of-a-hook-8",
    "broker password": "canary/broker+password=9",
    "good broker password": "canary/lawn+password=10",
    "web token": "canary/web+token=11",
    "API proxy password": "canary-proxy-password-12",
    "webhook proxy password": "canary-hook-proxy-password-13",
    "webhook path, by file": "canary-path-in-a-file-14",
    "webhook path, by variable": "canary-path-in-a-variable-15",
    "API proxy password, by file": "canary-proxy-password-in-a-file-16",
    "webhook proxy password, by variable": "canary-proxy-password-in-a-variable-17",
    "OAuth client secret": "canary/client+secret=18",
    "signing key": "Y2FuYXJ5LXNpZ25pbmcta2V5LXR3ZW50eS0yMC1hYmM=",
}
_VARIABLES: Final = {
    "CANARY_API": SECRETS["API key, by variable"],
    "CANARY_HOOK": f"whsec_{SECRETS['webhook secret']}",
    "CANARY_HEADER": SECRETS["webhook header"],
    "CANARY_FLOOR": SECRETS["broker password"],
    "CANARY_URL": f"https://hooks.invalid/{SECRETS['webhook path, by variable']}",
    "CANARY_PROXY": f"http://u:{SECRETS['webhook proxy password, by variable']}@{{server}}",
}
_FILES: Final = {
    "api-key": SECRETS["API key, by file"],
    "hook-secret": f"whsec_{SECRETS['webhook secret, the next']}",
    "client-secret": SECRETS["OAuth client secret"],
    "signing-key": f"whsk_{SECRETS['signing key']}",
    "hook-bearer": SECRETS["webhook bearer"],
    "hook-url": f"http://{{server}}/hooks/{SECRETS['webhook path, by file']}",
    "proxy-url": f"http://user:{SECRETS['API proxy password, by file']}@{{server}}",
    "lawn-password": SECRETS["good broker password"],
    "web-token": SECRETS["web token"],
}

_CONFIG: Final = """
name = "acme"

[web]
listen = "127.0.0.1:{web}"
token = {{ file = "web-token" }}

[resources]
shipments = {{ every = "300ms", first_pass = "emit", key = "/id", updated_at = "/updated_at" }}

[sources.main]
base_url = "{mirror}"
api_key = {{ env = "CANARY_API" }}
requests_per_minute = 6000

[sources.refused]
base_url = "{mirror}/refusing"
api_key = {{ env = "CANARY_API" }}

[sources.praised]
base_url = "{mirror}/praising"
api_key = {{ env = "CANARY_API" }}

[sources.named]
base_url = "{mirror}/naming"
api_key = {{ env = "CANARY_API" }}

[sources.sent]
base_url = "{mirror}/sending"
api_key = {{ env = "CANARY_API" }}

[sources.babbled]
base_url = "{mirror}/babbling"
api_key = {{ env = "CANARY_API" }}

[sources.tls]
base_url = "https://127.0.0.1:{port}"
api_key = {{ file = "api-key" }}

[sources.proxied]
base_url = "http://api.invalid"
api_key = {{ file = "api-key" }}
proxy = "http://user:{api_proxy}@127.0.0.1:{port}"

[sources.tunnelled]
base_url = "https://api.invalid"
api_key = {{ file = "api-key" }}
proxy = "http://user:{api_proxy}@127.0.0.1:{port}"

[sources.filed]
base_url = "https://api.invalid"
api_key = {{ file = "api-key" }}
proxy = {{ file = "proxy-url" }}

[sinks.hook]
type = "webhook"
url = "{mirror}/hooks/{path}?token={query}"
secret = [{{ env = "CANARY_HOOK" }}, {{ file = "hook-secret" }}]
headers = {{ x-canary = {{ env = "CANARY_HEADER" }} }}
bearer = {{ file = "hook-bearer" }}

[sinks.tls]
type = "webhook"
url = "https://127.0.0.1:{port}/hooks/{path}?token={query}"
secret = {{ env = "CANARY_HOOK" }}
bearer = {{ file = "hook-bearer" }}

[sinks.proxied]
type = "webhook"
url = "https://hooks.invalid/{path}"
secret = {{ env = "CANARY_HOOK" }}
proxy = "http://user:{hook_proxy}@127.0.0.1:{port}"

[sinks.filed]
type = "webhook"
url = {{ file = "hook-url" }}
secret = {{ env = "CANARY_HOOK" }}

[sinks.named]
type = "webhook"
url = {{ env = "CANARY_URL" }}
secret = {{ env = "CANARY_HOOK" }}
proxy = {{ env = "CANARY_PROXY" }}

[sinks.granted]
type = "webhook"
url = "{mirror}/hooks/granted"
secret = {{ env = "CANARY_HOOK" }}
signing_key = {{ file = "signing-key" }}
oauth2 = {{ token_url = "{mirror}/granting", client_id = "acme", client_secret = {{ file = "client-secret" }} }}

[sinks.ungranted]
type = "webhook"
url = "{mirror}/hooks/ungranted"
secret = {{ env = "CANARY_HOOK" }}

[sinks.ungranted.oauth2]
token_url = "{mirror}/refusing"
client_id = "acme"
client_secret = {{ file = "client-secret" }}
client_auth = "post"

[sinks.floor]
type = "mqtt"
url = "{broker}"
username = "floor"
password = {{ env = "CANARY_FLOOR" }}

[sinks.lawn]
type = "mqtt"
url = "{broker}"
username = "lawn"
password = {{ file = "lawn-password" }}
resources = ["shipments", "notices"]
"""


def hide_secrets(folder: Path, server: str) -> dict[str, str]:
    """Write the files that the configuration names into a folder, and return the variables.

    Args:
        folder: Of the configuration.
        server: URL of who takes what is sent to receivers and proxies.
    """
    place = server.removeprefix("http://")
    for name, text in _FILES.items():
        (folder / name).write_text(text.format(server=place) + "\n")
    return {name: text.format(server=place) for name, text in _VARIABLES.items()}


def write_config(server: str, *, broker: str, web_port: int) -> str:
    """Return the configuration.

    Args:
        server: As for :func:`hide_secrets`.
        broker: Its URL.
        web_port: Where ``[web]`` listens.
    """
    return _CONFIG.format(
        web=web_port,
        mirror=server,
        port=server.rpartition(":")[2],
        broker=broker,
        api_proxy=SECRETS["API proxy password"],
        hook_proxy=SECRETS["webhook proxy password"],
        path=SECRETS["webhook path"],
        query=SECRETS["webhook query"],
    )
