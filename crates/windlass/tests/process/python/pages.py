"""Lists in pages are one consistent list."""

import sys

from kubernetes import client, config

config.load_kube_config(sys.argv[1])
v1 = client.CoreV1Api()
v1.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="paged")))
names = [f"item-{number:02}" for number in range(25)]
for name in names:
    v1.create_namespaced_secret("paged", client.V1Secret(metadata=client.V1ObjectMeta(name=name)))

seen, remaining, token, version = [], [], None, None
while True:
    page = v1.list_namespaced_secret("paged", limit=10, _continue=token)
    seen += [item.metadata.name for item in page.items]
    remaining.append(page.metadata.remaining_item_count)
    version = version or page.metadata.resource_version
    assert page.metadata.resource_version == version, "one list has one version"
    token = page.metadata._continue
    if not token:
        break
    # What is made between the pages belongs to the next list.
    v1.create_namespaced_secret("paged", client.V1Secret(metadata=client.V1ObjectMeta(name=f"item-99-{len(seen)}")))
assert seen == names, seen
assert remaining == [15, 5, None], remaining
assert len(v1.list_namespaced_secret("paged").items) == 27
