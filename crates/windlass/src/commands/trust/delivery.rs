//! Which bundle has arrived where: a pure function of what the server has.

#[cfg(test)]
pub mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};
use windlass_node::trust::object::{
    NodeTrustBundle, NodeTrustSource, NodeTrustStatus, digest_text,
};
use windlass_node::volume::content::{Bundle, Bundles, Select};

/// What is said of a node whose report does not list everything.
const CUT: &str = "not everything is in the report of this node";

/// What the server has.
#[derive(Debug, Default)]
pub struct World {
    /// The bundles, with what is known of each.
    pub known: BTreeMap<String, Known>,
    /// The same, for looking them up.
    pub bundles: Bundles,
    /// What nodes report, by their name.
    pub reports: BTreeMap<String, Reported>,
    /// All nodes, if they can be looked at.
    pub nodes: Option<BTreeSet<String>>,
}

/// A bundle.
#[derive(Debug, Clone)]
pub struct Known {
    /// The signer it is of; may be empty.
    pub signer: String,
    /// Its generation, or 0.
    pub generation: i64,
    /// The digest of its anchors.
    pub digest: String,
    /// How many there are.
    pub certificates: usize,
}

/// What a node reports.
#[derive(Debug, Clone, Default)]
pub struct Reported {
    /// The report.
    pub status: NodeTrustStatus,
    /// When it was last written, as RFC 3339; empty if that is not known.
    pub at: String,
}

/// How far a bundle has come.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// The bundle.
    pub name: String,
    /// The signer it is of.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub signer: String,
    /// Whether there is such a bundle.
    pub exists: bool,
    /// Its generation, or 0.
    pub generation: i64,
    /// The digest of its anchors.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// How many anchors it has.
    pub certificates: usize,
    /// How many nodes should have it.
    pub nodes: usize,
    /// How many of them have it.
    pub have: usize,
    /// Where it is not, although it should be there.
    pub lacking: Vec<At>,
    /// Where it is, although it should not be there: it is gone, or nothing selects it any more.
    pub leftover: Vec<At>,
    /// Where it is, in whichever generation.
    #[serde(skip)]
    pub carriers: Vec<At>,
}

/// A node, with the volumes that are meant.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct At {
    /// The node.
    pub node: String,
    /// When it last reported, as RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reported: String,
    /// Its volumes; those with the same are one.
    pub volumes: Vec<Volumes>,
}

/// Volumes that carry the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Volumes {
    /// What they carry of the bundle.
    pub carries: Carries,
    /// Their names.
    pub names: Vec<String>,
    /// How many more there are.
    pub more: u32,
    /// Why they do not have what they should have.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What volumes carry of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Carries {
    /// It is not known.
    Unknown,
    /// Nothing.
    Nothing,
    /// This generation, if it is not 0, with this digest.
    Bundle {
        /// The generation.
        generation: i64,
        /// The digest.
        digest: String,
    },
}

/// How far all bundles have come, by name: those that are there, and others that nodes have or wait
/// for.
pub fn deliveries(world: &World) -> Vec<Delivery> {
    let known = world.known.iter().map(|(name, known)| (name.clone(), known.delivery(name)));
    let mut all = known.collect::<BTreeMap<_, _>>();
    for (node, reported) in &world.reports {
        let mut wanted = BTreeSet::new();
        for source in &reported.status.sources {
            Look { world, node, reported, source }.sort(&mut all, &mut wanted);
        }
        for name in &wanted {
            let delivery = named(&mut all, name);
            if reported.status.more_sources > 0 {
                let (carries, message) = (Carries::Unknown, CUT.to_owned());
                let unlisted = Volumes { carries, names: Vec::new(), more: 0, message };
                add(&mut delivery.lacking, node, reported, unlisted);
            }
            delivery.nodes += 1;
            // Nodes come in order, so this one would be the last.
            let lacks = delivery.lacking.last().is_some_and(|at| at.node == *node);
            delivery.have += usize::from(!lacks);
        }
    }
    all.into_values().collect()
}

/// A source of a node, to be looked at.
struct Look<'a> {
    world: &'a World,
    node: &'a str,
    reported: &'a Reported,
    source: &'a NodeTrustSource,
}

impl Look<'_> {
    fn sort(&self, all: &mut BTreeMap<String, Delivery>, wanted: &mut BTreeSet<String>) {
        let Self { world, node, reported, source } = self;
        let carried: BTreeMap<&str, &NodeTrustBundle> =
            source.bundles.iter().map(|bundle| (bundle.name.as_str(), bundle)).collect();
        let select = source.select();
        let selected = select.as_ref().map(|select| world.bundles.select(select));
        let selected = selected.unwrap_or_default();
        for Bundle { name, .. } in &selected {
            wanted.insert(name.clone());
            let found = carried.get(name.as_str()).copied();
            let current = world.known.get(name).map(|known| known.digest.as_str());
            if found.map(|found| found.digest.as_str()) != current {
                let delivery = named(all, name);
                add(&mut delivery.lacking, node, reported, self.volumes(found));
            }
        }
        // One that is waited for by its name, and was never there.
        if let Some(Select::Name(name)) = &select
            && selected.is_empty()
            && !source.optional
            && !carried.contains_key(name.as_str())
        {
            wanted.insert(name.clone());
            add(&mut named(all, name).lacking, node, reported, self.volumes(None));
        }
        for bundle in carried.values().copied() {
            let delivery = named(all, &bundle.name);
            let volumes = self.volumes(Some(bundle));
            add(&mut delivery.carriers, node, reported, volumes.clone());
            if !selected.iter().any(|selected| selected.name == bundle.name) {
                add(&mut delivery.leftover, node, reported, volumes);
            }
        }
    }

    fn volumes(&self, found: Option<&NodeTrustBundle>) -> Volumes {
        let carries = match found {
            Some(NodeTrustBundle { generation, digest, .. }) => {
                Carries::Bundle { generation: *generation, digest: digest.clone() }
            }
            None if self.source.digest.is_empty() => Carries::Unknown,
            None => Carries::Nothing,
        };
        let NodeTrustSource { volumes, more_volumes, message, .. } = self.source;
        let (names, message) = (volumes.clone(), message.clone());
        Volumes { carries, names, more: *more_volumes, message }
    }
}

fn named<'a>(all: &'a mut BTreeMap<String, Delivery>, name: &str) -> &'a mut Delivery {
    let absent = || Delivery { name: name.to_owned(), ..Delivery::default() };
    all.entry(name.to_owned()).or_insert_with(absent)
}

fn add(list: &mut Vec<At>, node: &str, reported: &Reported, volumes: Volumes) {
    match list.last_mut() {
        Some(last) if last.node == node => last.volumes.push(volumes),
        Some(_) | None => {
            let (node, reported) = (node.to_owned(), reported.at.clone());
            list.push(At { node, reported, volumes: vec![volumes] });
        }
    }
}

impl World {
    /// Adds a bundle, in the place of the one with its name.
    pub fn set_bundle(&mut self, bundle: Bundle) {
        let known = Known {
            signer: bundle.signer.clone(),
            generation: bundle.generation,
            digest: digest_text(&bundle.anchors.digest()),
            certificates: bundle.anchors.len(),
        };
        self.known.insert(bundle.name.clone(), known);
        self.bundles.set(bundle);
    }

    /// Forgets a bundle.
    pub fn remove_bundle(&mut self, name: &str) {
        self.known.remove(name);
        self.bundles.remove(name);
    }

    /// The nodes that report nothing.
    pub fn silent(&self) -> Vec<&str> {
        let nodes = self.nodes.iter().flatten();
        nodes.filter(|node| !self.reports.contains_key(*node)).map(String::as_str).collect()
    }
}

impl Known {
    fn delivery(&self, name: &str) -> Delivery {
        Delivery {
            name: name.to_owned(),
            signer: self.signer.clone(),
            exists: true,
            generation: self.generation,
            digest: self.digest.clone(),
            certificates: self.certificates,
            ..Delivery::default()
        }
    }
}

impl Delivery {
    /// Whether it is where it should be, and nowhere else.
    pub fn is_well(&self) -> bool {
        self.lacking.is_empty() && self.leftover.is_empty()
    }

    /// Whether it is of this signer. The name says so if nothing else is left of it.
    pub fn is_of(&self, signer: &str) -> bool {
        match self.exists {
            true => self.signer == signer,
            false => self.name.starts_with(&(signer.replace('/', ":") + ":")),
        }
    }

    /// How far it has come, in a word or two.
    pub fn state(&self) -> &'static str {
        match (self.exists, self.nodes) {
            (false, _) if self.carriers.is_empty() => "absent",
            (false, _) => "gone",
            (true, _) if !self.lacking.is_empty() => "incomplete",
            (true, _) if !self.leftover.is_empty() => "leftover",
            (true, 0) => "unused",
            (true, _) => "delivered",
        }
    }

    /// It without the nodes.
    pub fn summary(&self) -> Value {
        let mut document = json!({
            "name": self.name,
            "exists": self.exists,
            "state": self.state(),
            "generation": self.generation,
            "certificates": self.certificates,
            "nodes": self.nodes,
            "have": self.have,
            "lacking": self.lacking.len(),
            "leftover": self.leftover.len(),
        });
        for (field, text) in [("signer", &self.signer), ("digest", &self.digest)] {
            if !text.is_empty() {
                document[field] = json!(text);
            }
        }
        document
    }
}
