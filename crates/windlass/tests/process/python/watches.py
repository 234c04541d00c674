"""Watch from a version, see everything after it once, and come back where it stopped."""

import sys

from kubernetes import client, config, watch

config.load_kube_config(sys.argv[1])
v1 = client.CoreV1Api()


def config_map(name, value):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data={"value": value})


start = v1.list_namespaced_config_map("default").metadata.resource_version
v1.create_namespaced_config_map("default", config_map("a", "1"))
v1.replace_namespaced_config_map("a", "default", config_map("a", "2"))
v1.create_namespaced_config_map("default", config_map("b", "1"))
v1.delete_namespaced_config_map("a", "default")


def follow(version, count):
    seen = []
    watcher = watch.Watch()
    for event in watcher.stream(
        v1.list_namespaced_config_map, "default", resource_version=version, timeout_seconds=20
    ):
        seen.append((event["type"], event["object"].metadata.name, event["object"].metadata.resource_version))
        if len(seen) == count:
            watcher.stop()
    return seen


seen = follow(start, 4)
assert [(kind, name) for kind, name, _ in seen] == [
    ("ADDED", "a"),
    ("MODIFIED", "a"),
    ("ADDED", "b"),
    ("DELETED", "a"),
], seen
versions = [int(version) for _, _, version in seen]
assert versions == sorted(set(versions)), versions

assert follow(seen[1][2], 2) == seen[2:], "resumed after the second event"

# Without a version the present comes first.
present = follow(None, 1)
assert present[0][:2] == ("ADDED", "b"), present

# A watch ends when it was asked to.
assert list(
    watch.Watch().stream(v1.list_namespaced_secret, "default", resource_version=seen[3][2], timeout_seconds=1)
) == []
