//! Examples in the help of commands that have no file of their own here.

pub const UP: &str = "Examples:
  windlass up
  windlass up --data-dir /var/lib/windlass --listen 0.0.0.0:6443 --tls-san windlass.example
  windlass up --node-name host-1 --projections projections.yaml";

pub const SERVER: &str = "Examples:
  windlass server --data-dir /var/lib/windlass
  windlass server --etcd-servers https://etcd-0:2379,https://etcd-1:2379 --external-url https://lb.example:6443";

pub const CONTROLLERS: &str = "Examples:
  windlass controllers --kubeconfig admin.kubeconfig --signers signers.yaml
  windlass controllers --kubeconfig ~/.kube/config --context production --controllers bundle-controller";

pub const CRDS: &str = "Examples:
  windlass crds | kubectl apply -f -
  windlass crds nodetrusts
  windlass crds signers ledgersegments";

pub const CAN_I: &str = "Examples:
  windlass can-i approve csr
  windlass can-i get pods web-0 -n shop --as alice --as-group dev";

pub const VERSION: &str = "Examples:
  windlass version
  windlass version -o json";

pub const USER_ADD: &str = "Examples:
  windlass user add alice --group dev --expires 90d
  windlass user add ci --out - > ci.kubeconfig";

pub const STORE_CHECK: &str = "Examples:
  windlass store check --data-dir /var/lib/windlass
  windlass store check backup.db";

pub const STORE_BACKUP: &str = "Examples:
  windlass store backup --data-dir /var/lib/windlass backup.db";

pub const STORE_RESTORE: &str = "Examples:
  windlass store restore --data-dir /var/lib/windlass backup.db";

pub const STORE_EXPORT: &str = "Examples:
  windlass store export --data-dir /var/lib/windlass objects.export
  windlass store export --etcd-servers https://etcd-0:2379 objects.export";

pub const STORE_IMPORT: &str = "Examples:
  windlass store import --etcd-servers https://etcd-0:2379 objects.export
  windlass store import --etcd-servers https://etcd-0:2379 --undo";

pub const STORE_RAISE_REVISION: &str = "Examples:
  windlass store raise-revision --etcd-servers https://etcd-0:2379";
