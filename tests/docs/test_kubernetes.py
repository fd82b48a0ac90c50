"""The manifests for Kubernetes: by its own schemas, and against the image and the program that they run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from dockbell.app import load_config
from tests.docs.markdown import ROOT

FOLDER: Final = ROOT / "docs" / "operations"
VERSIONS: Final = ("1.28", "1.32", kubernetes_validate.latest_version())
SECRETS: Final = "/run/secrets/dockbell/"


@pytest.fixture(params=["kubernetes.yaml", "kubernetes-postgres.yaml"])
def manifest(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """Return the objects of a manifest, by their kind."""
    objects = [*yaml.safe_load_all((FOLDER / request.param).read_text(encoding="utf-8"))]
    assert len({each["kind"] for each in objects}) == len(objects)
    return {each["kind"]: each for each in objects}


@pytest.fixture
def pod(manifest: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what the pods of a manifest are."""
    found: dict[str, Any] = (manifest.get("StatefulSet") or manifest["Deployment"])["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_each_object_is_one_that_kubernetes_takes(manifest: dict[str, dict[str, Any]], version: str) -> None:
    for each in manifest.values():
        kubernetes_validate.validate(each, version, strict=True)


def test_the_configuration_loads_and_its_secrets_are_those_that_the_guide_makes(
    manifest: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    guide = (FOLDER / "kubernetes.md").read_text(encoding="utf-8")
    made = set(re.findall(r"--from-\w+=([a-z-]+)=", guide))
    text: str = manifest["ConfigMap"]["data"]["dockbell.toml"]
    wanted = set(re.findall(rf'file = "{SECRETS}([a-z-]+)"', text))
    assert wanted
    assert wanted <= made
    for name in wanted:
        secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" if name == "erp-secret" else "0123456789abcdef" * 4
        (tmp_path / name).write_text(secret)
    path = tmp_path / "dockbell.toml"
    path.write_text(text.replace(SECRETS, f"{tmp_path}/"))
    config = load_config(path)
    assert (config.store.path is None) == ("Deployment" in manifest)
    assert config.web is not None


def test_the_pod_mounts_what_the_configuration_names_and_nothing_is_missing(
    manifest: dict[str, dict[str, Any]], pod: dict[str, Any]
) -> None:
    (container,) = pod["containers"]
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    claimed = [
        each["metadata"]["name"]
        for each in manifest.get("StatefulSet", {}).get("spec", {}).get("volumeClaimTemplates", [])
    ]
    assert mounted.keys() == {*claimed, *(each["name"] for each in pod["volumes"])}
    assert mounted["secrets"] == SECRETS.rstrip("/")
    assert mounted["config"] == "/etc/dockbell"
    image = (FOLDER / "Containerfile").read_text(encoding="utf-8")
    assert "DOCKBELL_CONFIG=/etc/dockbell/dockbell.toml" in image
    assert mounted.get("store", "/var/lib/dockbell") in image


def test_the_pod_runs_as_the_user_of_the_image_without_rights(pod: dict[str, Any]) -> None:
    user = pod["securityContext"]
    image = (FOLDER / "Containerfile").read_text(encoding="utf-8")
    assert f"USER {user['runAsUser']}:{user['runAsGroup']}\n" in image
    assert (user["fsGroup"], user["runAsNonRoot"]) == (user["runAsGroup"], True)
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False


def test_the_probes_ask_what_every_process_answers_to_everyone(
    manifest: dict[str, dict[str, Any]], pod: dict[str, Any]
) -> None:
    (container,) = pod["containers"]
    (port,) = container["ports"]
    probes = [container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert probes == [{"path": "/healthz", "port": port["name"]}] * 3
    assert f'listen = "0.0.0.0:{port["containerPort"]}"' in manifest["ConfigMap"]["data"]["dockbell.toml"]
    service = manifest["Service"]["spec"]
    assert [each["targetPort"] for each in service["ports"]] == [port["name"]]
    labels = (manifest.get("StatefulSet") or manifest["Deployment"])["spec"]["template"]["metadata"]["labels"]
    assert service["selector"] == labels
