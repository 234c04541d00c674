use super::*;
use proptest::prelude::*;

/// Pods to apply, with few names so that they collide.
fn any_pod() -> impl Strategy<Value = Value> {
    let text = || prop::option::of("[xy]");
    let ports = prop::collection::btree_map((1..3u8, "TCP|UDP"), text(), 0..3).prop_map(|ports| {
        ports
            .into_iter()
            .map(|((number, protocol), name)| {
                let mut port = json!({"containerPort": number});
                if protocol == "UDP" {
                    port["protocol"] = protocol.into();
                }
                if let Some(name) = name {
                    port["name"] = name.into();
                }
                port
            })
            .collect::<Vec<_>>()
    });
    let containers = prop::collection::btree_map("[abc]", (text(), ports), 0..3).prop_map(|list| {
        list.into_iter()
            .map(|(name, (image, ports))| {
                let mut container = json!({"name": name});
                if let Some(image) = image {
                    container["image"] = image.into();
                }
                if !ports.is_empty() {
                    container["ports"] = ports.into();
                }
                container
            })
            .collect::<Vec<_>>()
    });
    let labels = prop::collection::btree_map("[ab]", "[xy]", 0..3);
    let finalizers = prop::collection::btree_set("[ab]", 0..3);
    (containers.prop_shuffle(), labels, finalizers, text()).prop_map(
        |(containers, labels, finalizers, node)| {
            let mut pod = json!({"metadata": {"name": "p"}, "spec": {}});
            if !containers.is_empty() {
                pod["spec"]["containers"] = containers.into();
            }
            if !labels.is_empty() {
                pod["metadata"]["labels"] = json!(labels);
            }
            if !finalizers.is_empty() {
                pod["metadata"]["finalizers"] = json!(finalizers);
            }
            if let Some(node) = node {
                pod["spec"]["nodeName"] = node.into();
            }
            pod
        },
    )
}

/// One step: manager, object, and update or forced apply.
fn any_steps() -> impl Strategy<Value = Vec<(String, Value, bool)>> {
    prop::collection::vec(("one|two|three", any_pod(), any::<bool>()), 1..6)
}

fn run_steps(steps: &[(String, Value, bool)]) -> LiveObject {
    let mut live = LiveObject::new("Pod");
    for (who, pod, update) in steps {
        if *update {
            live.update(who, pod.clone());
        } else {
            live.apply(who, pod.clone(), true).unwrap();
        }
    }
    live
}

fn pod_field_set(pod: &Value) -> FieldSet {
    field_set(schema(), type_id("Pod"), pod)
}

/// Every leaf of `part` has the same value in `whole`.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(k, v)| whole.get(k).is_some_and(|w| contains(w, v)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            part.iter().all(|v| whole.iter().any(|w| contains(w, v)))
        }
        (whole, part) => whole == part,
    }
}

proptest! {
    #[test]
    fn applying_is_idempotent(steps in any_steps(), pod in any_pod()) {
        let mut live = run_steps(&steps);
        live.apply("one", pod.clone(), true).unwrap();
        let once = live.object.clone();
        prop_assert_eq!(live.apply("one", pod, false), Ok(false));
        prop_assert_eq!(live.object, once);
    }

    #[test]
    fn a_forced_apply_overrides_conflicts(steps in any_steps(), pod in any_pod()) {
        let mut live = run_steps(&steps);
        live.apply("one", pod.clone(), true).unwrap();
        prop_assert!(contains(&live.without_managed_fields(), &pod), "{} lacks some of {}", live.without_managed_fields(), pod);
        let mut mine = pod_field_set(&pod);
        let entries = parse(&live.object.unwrap()["metadata"]["managedFields"]).unwrap_or_default();
        let own = entries.iter().find(|m| m.belongs_to(&writer("one", ""), ManagedFieldsOperation::Apply));
        mine.difference(&own.map(|m| m.fields.clone()).unwrap_or_default());
        prop_assert!(mine.is_empty(), "not owned: {:?}", mine.paths(usize::MAX));
    }

    #[test]
    fn only_what_is_there_is_owned(steps in any_steps()) {
        let live = run_steps(&steps);
        let entries = live.object.as_ref().unwrap()["metadata"].get("managedFields").cloned();
        let all = pod_field_set(&live.without_managed_fields());
        for entry in parse(&entries.unwrap_or(json!([]))).unwrap() {
            // Enclosing objects may be owned as well; leaves must exist in the object.
            let mut leaves = entry.fields.leaves();
            leaves.difference(&all);
            let around = leaves.paths(usize::MAX).into_iter().all(|path| {
                let last = path.rsplit('.').next().unwrap_or_default().to_owned();
                ["labels", "finalizers", "ports", "containers", "spec"].contains(&last.as_str())
            });
            prop_assert!(around, "{} owns {:?} of {}", entry.manager, leaves.paths(usize::MAX), live.without_managed_fields());
        }
    }

    #[test]
    fn sets_survive_the_wire(steps in any_steps()) {
        let live = run_steps(&steps);
        let Some(list) = live.object.unwrap()["metadata"].get("managedFields").cloned() else { return Ok(()) };
        let parsed = parse(&list).unwrap();
        for entry in &parsed {
            prop_assert_eq!(&FieldSet::decode(&entry.fields.clone().encode()).unwrap(), &entry.fields);
        }
        prop_assert_eq!(encode(parsed), list);
    }

    #[test]
    fn set_algebra(a in any_pod(), b in any_pod()) {
        let (a, b) = (pod_field_set(&a), pod_field_set(&b));
        let mut union = a.clone();
        union.union(&b);
        let mut other = b.clone();
        other.union(&a);
        prop_assert_eq!(&union, &other);
        let mut only = a.clone();
        only.difference(&b);
        let mut rebuilt = a.intersection(&b);
        rebuilt.union(&only);
        prop_assert_eq!(rebuilt, a);
        prop_assert!(only.intersection(&b).is_empty());
    }

    #[test]
    fn an_update_to_the_same_is_nothing(steps in any_steps()) {
        let mut live = run_steps(&steps);
        let before = live.object.clone();
        live.update("four", live.without_managed_fields());
        prop_assert_eq!(live.object, before);
    }
}
