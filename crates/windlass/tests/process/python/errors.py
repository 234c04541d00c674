"""Errors are Status objects that the client can read."""

import json
import sys

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

config.load_kube_config(sys.argv[1])
v1 = client.CoreV1Api()


def refused(status, reason, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except ApiException as error:
        body = json.loads(error.body)
        assert error.status == status, error
        assert body["kind"] == "Status" and body["apiVersion"] == "v1", body
        assert body["status"] == "Failure" and body["code"] == status, body
        assert body["reason"] == reason, body
        return body
    raise AssertionError(f"{call.__name__} should have failed with {status}")


def config_map(name, **metadata):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, **metadata))


body = refused(404, "NotFound", v1.read_namespaced_config_map, "missing", "default")
assert body["message"] == 'configmaps "missing" not found', body
assert body["details"] == {"name": "missing", "kind": "configmaps"}, body

made = v1.create_namespaced_config_map("default", config_map("there"))
refused(409, "AlreadyExists", v1.create_namespaced_config_map, "default", config_map("there"))

v1.patch_namespaced_config_map("there", "default", {"data": {"a": "b"}})
refused(409, "Conflict", v1.replace_namespaced_config_map, "there", "default", made)

body = refused(422, "Invalid", v1.create_namespaced_config_map, "default", config_map("Not_A_Name"))
assert body["details"]["causes"][0]["field"] == "metadata.name", body

refused(400, "BadRequest", v1.list_namespaced_config_map, "default", label_selector="a in (")
refused(404, "NotFound", v1.create_namespaced_config_map, "nowhere", config_map("a"))

nobody = client.Configuration.get_default_copy()
nobody.cert_file = nobody.key_file = None
nobody.api_key = {"authorization": "Bearer wrong"}
stranger = client.CoreV1Api(client.ApiClient(nobody))
refused(401, "Unauthorized", stranger.list_namespaced_config_map, "default")
