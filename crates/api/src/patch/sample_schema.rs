//! Small test schema that covers every merge strategy.

use crate::schema::{Schema, TypeId};

const TABLE: &str = r#"
package t
type Meta
  1 name string nonempty
  3 namespace string nonempty
  5 uid string nonempty
  6 resourceVersion string nonempty
  7 generation int64 nonempty
  8 creationTimestamp time always
  9 deletionTimestamp time given
  11 labels map[string] nonempty
  12 annotations map[string] nonempty
  13 ownerReferences []Owner nonempty list=key:uid patch=merge:uid
  14 finalizers []string nonempty list=set patch=merge
  17 managedFields []Entry nonempty
type Owner atomic
  1 uid string always
  2 name string always
type Entry
  1 manager string nonempty
type ConfigMap
  1 metadata Meta always
  2 data map[string] nonempty
  3 immutable bool given
type Bundle
  1 metadata Meta always
  2 spec BundleSpec always
type BundleSpec
  1 signerName string nonempty
  2 trustBundle string always
type Pod
  1 metadata Meta always
  2 spec PodSpec always
  3 status PodStatus nonempty
type PodSpec
  1 containers []Container always list=key:name patch=merge:name
  2 volumes []Volume nonempty list=key:name patch=merge+retainKeys:name
  3 strategy Strategy nonempty patch=retainKeys
  4 selector Selector given
  5 nodeSelector map[string] nonempty map=atomic
  6 tolerations []Toleration nonempty
  7 nodeName string nonempty
  8 groups []int64 nonempty
type Container
  1 name string always
  2 image string nonempty
  3 ports []Port nonempty list=key:containerPort,protocol patch=merge:containerPort
  4 env []Env nonempty list=key:name patch=merge:name
  5 args []string nonempty list=atomic
  6 resources Resources always
type Resources
  1 limits map[quantity] nonempty
type Port
  1 name string nonempty
  2 containerPort int32 always
  3 protocol string nonempty default="TCP"
  4 hostPort int32 nonempty
type Env
  1 name string always
  2 value string nonempty
type Volume
  1 name string always
  2 secret Source given
  3 configMap Source given
type Source
  1 name string nonempty
type Strategy
  1 kind string nonempty
  2 rolling Rolling given
type Rolling
  1 max int32 given
type Selector atomic
  1 matchLabels map[string] nonempty
type Toleration
  1 key string nonempty
  2 value string nonempty
type PodStatus
  1 phase string nonempty
  2 conditions []Condition nonempty list=key:type patch=merge:type
type Condition
  1 type string always
  2 status string always
"#;

pub(crate) fn schema() -> &'static Schema {
    static SCHEMA: std::sync::OnceLock<Schema> = std::sync::OnceLock::new();
    SCHEMA.get_or_init(|| Schema::parse(&[("sample", TABLE)]).unwrap())
}

pub(crate) fn type_id(kind: &str) -> TypeId {
    schema().lookup(&format!("t.{kind}")).unwrap()
}
