"""Create, read, replace, patch and delete through the typed API."""

import base64
import sys

from kubernetes import client, config

config.load_kube_config(sys.argv[1])
v1 = client.CoreV1Api()

version = client.VersionApi().get_code()
assert version.major == "1", version
assert version.git_version.startswith("v1."), version

made = v1.create_namespaced_config_map(
    "default",
    client.V1ConfigMap(
        metadata=client.V1ObjectMeta(name="greeting", labels={"app": "test"}),
        data={"hello": "world"},
    ),
)
assert made.metadata.uid and made.metadata.resource_version, made
assert made.metadata.creation_timestamp is not None

read = v1.read_namespaced_config_map("greeting", "default")
assert read.data == {"hello": "world"}, read

read.data["hello"] = "there"
replaced = v1.replace_namespaced_config_map("greeting", "default", read)
assert replaced.metadata.resource_version != made.metadata.resource_version
assert replaced.metadata.uid == made.metadata.uid

patched = v1.patch_namespaced_config_map("greeting", "default", {"data": {"more": "yes"}})
assert patched.data == {"hello": "there", "more": "yes"}, patched
patched = v1.patch_namespaced_config_map(
    "greeting", "default", [{"op": "remove", "path": "/data/more"}]
)
assert patched.data == {"hello": "there"}, patched

listed = v1.list_namespaced_config_map("default", label_selector="app=test")
assert [item.metadata.name for item in listed.items] == ["greeting"], listed
assert "greeting" in [item.metadata.name for item in v1.list_config_map_for_all_namespaces().items]

secret = v1.create_namespaced_secret(
    "default",
    client.V1Secret(
        metadata=client.V1ObjectMeta(generate_name="key-"),
        string_data={"password": "swordfish"},
    ),
)
assert secret.metadata.name.startswith("key-") and len(secret.metadata.name) > 4
assert secret.type == "Opaque"
assert base64.b64decode(secret.data["password"]) == b"swordfish"
assert secret.string_data is None

lease = client.CoordinationV1Api().create_namespaced_lease(
    "default",
    client.V1Lease(
        metadata=client.V1ObjectMeta(name="lock"),
        spec=client.V1LeaseSpec(holder_identity="me", lease_duration_seconds=15),
    ),
)
assert lease.spec.holder_identity == "me"

v1.delete_namespaced_config_map("greeting", "default")
v1.delete_collection_namespaced_secret("default", field_selector="metadata.name=" + secret.metadata.name)
assert secret.metadata.name not in [item.metadata.name for item in v1.list_namespaced_secret("default").items]
