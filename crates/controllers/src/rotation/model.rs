//! A small world of nodes, leaves and controllers, in which random interleavings of their steps are explored. After
//! each step, every valid leaf verifies for every consumer, or the rotation reports who does not trust it; and once
//! the world is healthy, every rotation ends.

use std::collections::BTreeSet;
use std::time::Duration;

use time::OffsetDateTime;
use windlass_api::ca_rotation::{LaggardKind, RotationPhase};

use super::observation::{
    AuthorityIdentity, AuthorityPosition, AuthorityRole, BundleConsumer, BundleObservation, BundleOwner,
    BundleRole, ConsumerProof, DependentSigners, LeafCount, LeafObservation, NewAuthoritySource,
    RotationObservation,
};
use super::phase::{RotationAction, RotationDecision, derive};
use super::policy::RotationPolicy;

const OLD: u8 = 0;
const NEW: u8 = 1;
const LIFETIME: i64 = 3600;
/// Interleavings per test run, and under WINDLASS_LONG.
const CASES: (u64, u64) = (4_000, 100_000);
const STEPS: usize = 120;

type AnchorSet = BTreeSet<u8>;

/// Deterministic pseudorandom numbers (xorshift64*), so that a failing case can be repeated by its seed.
struct StepRandom(u64);

impl StepRandom {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

#[derive(Clone, Debug)]
struct ModelBundle {
    anchors: AnchorSet,
    tainted: AnchorSet,
    version: u64,
}

/// A node with one volume whose application reloads its file, now and then; or a Bundle, which nobody can exclude, and
/// whose readers are not observed.
#[derive(Clone, Debug)]
struct ModelNode {
    kind: LaggardKind,
    name: String,
    selects: BundleRole,
    /// Anchors in the file, as reported.
    written: AnchorSet,
    /// Anchors in the memory of the application.
    loaded: AnchorSet,
    is_read: bool,
    is_stopped: bool,
    /// Whether the node reports an error of the volume.
    is_failed: bool,
    /// Whether the application may have loaded what somebody had edited by hand, or what a clock that was set back has
    /// made insufficient: it has to read again, which is not waited for after the switch.
    is_tampered: bool,
}

#[derive(Clone, Debug)]
struct ModelLeaf {
    authority: u8,
    holder: usize,
    expires: i64,
    is_superseded: bool,
}

/// A decision of a controller that has not been executed yet.
struct DelayedAction {
    action: RotationAction,
    secret: u64,
    canary: u64,
    main: u64,
}

struct ModelWorld {
    now: i64,
    active: u8,
    next: Option<u8>,
    previous: Option<u8>,
    is_withdrawn: bool,
    secret_version: u64,
    canary: Option<ModelBundle>,
    main: ModelBundle,
    nodes: Vec<ModelNode>,
    leaves: Vec<ModelLeaf>,
    policy: RotationPolicy,
    canary_since: Option<OffsetDateTime>,
    renewing_since: Option<OffsetDateTime>,
    ended: Option<RotationPhase>,
    delayed: Vec<DelayedAction>,
    is_ledger_read: bool,
    are_reports_read: bool,
    /// Whether somebody edited a bundle, or a late write may have added an anchor. It stays until the publisher removes
    /// it.
    is_edited: bool,
    clock_was_set_back: bool,
    joined: usize,
}

fn identity(authority: u8) -> AuthorityIdentity {
    AuthorityIdentity { id: format!("id-{authority}"), anchor: format!("anchor-{authority}") }
}

fn number(role: AuthorityRole) -> u8 {
    match role {
        AuthorityRole::Old => OLD,
        AuthorityRole::New => NEW,
    }
}

fn time_at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000 + seconds).unwrap()
}

impl ModelNode {
    fn consumer_name(&self) -> String {
        match self.kind {
            LaggardKind::BundleTarget => format!("bundle/{}", self.name),
            LaggardKind::Node | LaggardKind::Signer => format!("node/{}/v", self.name),
        }
    }
}

impl ModelWorld {
    fn new(random: &mut StepRandom) -> ModelWorld {
        let bundle = ModelBundle { anchors: [OLD].into(), tainted: AnchorSet::new(), version: 0 };
        let policy = RotationPolicy {
            compromised: random.chance(8),
            require_read: random.chance(70),
            soak_time: Duration::from_secs(600),
            accept_outstanding_leaves: random.chance(8),
            renewal_window: Duration::from_secs(300),
            ..RotationPolicy::default()
        };
        let mut world = ModelWorld {
            now: 0,
            active: OLD,
            next: None,
            previous: None,
            is_withdrawn: false,
            secret_version: 0,
            canary: random.chance(50).then(|| bundle.clone()),
            main: bundle,
            nodes: Vec::new(),
            leaves: Vec::new(),
            policy,
            canary_since: None,
            renewing_since: None,
            ended: None,
            delayed: Vec::new(),
            is_ledger_read: true,
            are_reports_read: true,
            is_edited: false,
            clock_was_set_back: false,
            joined: 0,
        };
        (0..3).for_each(|_| world.join(random));
        (0..2).for_each(|holder| world.issue(holder));
        world
    }

    fn bundle(&self, role: BundleRole) -> &ModelBundle {
        match (role, &self.canary) {
            (BundleRole::Canary, Some(canary)) => canary,
            _ => &self.main,
        }
    }

    fn bundle_mut(&mut self, role: BundleRole) -> &mut ModelBundle {
        match (role, &mut self.canary) {
            (BundleRole::Canary, Some(canary)) => canary,
            _ => &mut self.main,
        }
    }

    fn join(&mut self, random: &mut StepRandom) {
        let is_canary = self.canary.is_some() && random.chance(30);
        let selects = if is_canary { BundleRole::Canary } else { BundleRole::Main };
        let written = self.bundle(selects).anchors.clone();
        let is_sufficient = [OLD, NEW]
            .into_iter()
            .filter(|authority| *authority == self.active || self.outstanding(*authority).next().is_some())
            .all(|authority| written.contains(&authority));
        self.joined += 1;
        let kind = if random.chance(25) { LaggardKind::BundleTarget } else { LaggardKind::Node };
        self.nodes.push(ModelNode {
            kind,
            name: format!("n{}", self.joined),
            selects,
            loaded: written.clone(),
            is_tampered: self.clock_was_set_back || !is_sufficient,
            written,
            is_read: true,
            is_stopped: false,
            is_failed: false,
        });
    }

    /// An agent writes the bundle and reports it.
    fn apply(&mut self, at: usize) {
        let Some(selects) = self.nodes.get(at).map(|node| node.selects) else { return };
        let anchors = self.bundle(selects).anchors.clone();
        let node = &mut self.nodes[at];
        if !node.is_stopped && node.written != anchors {
            node.written = anchors;
            node.is_read = false;
            if node.kind == LaggardKind::BundleTarget {
                node.loaded.clone_from(&node.written);
            }
        }
    }

    fn read(&mut self, at: usize) {
        let Some(node) = self.nodes.get_mut(at) else { return };
        node.loaded.clone_from(&node.written);
        node.is_read = true;
    }

    /// The signer issues a leaf, which supersedes the holder's previous ones.
    fn issue(&mut self, holder: usize) {
        self.leaves
            .iter_mut()
            .filter(|leaf| leaf.holder == holder)
            .for_each(|leaf| leaf.is_superseded = true);
        let (authority, expires) = (self.active, self.now + LIFETIME);
        self.leaves.push(ModelLeaf { authority, holder, expires, is_superseded: false });
    }

    fn outstanding(&self, authority: u8) -> impl Iterator<Item = &ModelLeaf> {
        let is_valid = move |leaf: &&ModelLeaf| {
            leaf.authority == authority && leaf.expires >= self.now && !leaf.is_superseded
        };
        self.leaves.iter().filter(is_valid)
    }

    fn observe(&self) -> RotationObservation {
        self.observe_reports(self.are_reports_read)
    }

    fn observe_reports(&self, reports: bool) -> RotationObservation {
        let position = match (self.active, self.next, self.previous) {
            (OLD, Some(NEW), _) => AuthorityPosition::Prepared {
                old: identity(OLD),
                new: identity(NEW),
                is_withdrawn: self.is_withdrawn,
            },
            (NEW, _, previous) => AuthorityPosition::Switched {
                old: identity(OLD),
                new: identity(NEW),
                is_reversible: previous.is_some(),
            },
            _ => AuthorityPosition::Unprepared(NewAuthoritySource::Generated),
        };
        RotationObservation {
            position,
            is_generated: true,
            canary: self.canary.as_ref().map(|_| self.observe_bundle(BundleRole::Canary, reports)),
            main: Some(self.observe_bundle(BundleRole::Main, reports)),
            leaves: self.is_ledger_read.then(|| self.count_leaves()),
            dependents: DependentSigners::default(),
            canary_since: self.canary_since,
            renewing_since: self.renewing_since,
        }
    }

    fn count_leaves(&self) -> LeafObservation {
        let count = |authority: u8| LeafCount {
            issued: 0,
            outstanding: self.outstanding(authority).count() as u64,
            latest_expiry: self.outstanding(authority).map(|leaf| time_at(leaf.expires)).max(),
        };
        LeafObservation { old: count(OLD), new: count(NEW) }
    }

    fn observe_bundle(&self, role: BundleRole, reports: bool) -> BundleObservation {
        let bundle = self.bundle(role);
        let consumers = self.nodes.iter().filter(|node| node.selects == role).map(|node| BundleConsumer {
            kind: node.kind,
            name: node.consumer_name(),
            node: Some(node.name.clone()).filter(|_| node.kind == LaggardKind::Node).unwrap_or_default(),
            volumes: 1,
            failure: node.is_failed.then(String::new),
            blocked: String::new(),
            proof: match node.written == bundle.anchors {
                false => ConsumerProof::Stale(String::new()),
                true if node.kind == LaggardKind::BundleTarget => ConsumerProof::NotObservable,
                true if node.is_read => ConsumerProof::Read,
                true => ConsumerProof::NotRead { since: None },
            },
        });
        BundleObservation {
            name: format!("{role:?}"),
            owner: BundleOwner::Windlass,
            anchors: bundle.anchors.iter().map(|each| identity(*each).anchor).collect(),
            tainted: bundle.tainted.iter().map(|each| identity(*each).id).collect(),
            consumers: reports.then(|| consumers.collect()),
        }
    }

    fn decide(&self) -> RotationDecision {
        derive(&self.policy, &self.observe(), time_at(self.now))
    }

    /// A controller observes, records its phase, and executes its decision at once or later.
    fn reconcile(&mut self, delays: bool) {
        if self.ended.is_some() {
            return;
        }
        let decision = self.decide();
        let now = time_at(self.now);
        match decision.phase {
            RotationPhase::PublishingCanary => drop(self.canary_since.get_or_insert(now)),
            RotationPhase::Renewing => drop(self.renewing_since.get_or_insert(now)),
            phase if phase.is_final() => self.ended = Some(phase),
            _ => {}
        }
        let Some(action) = decision.action else { return };
        let delayed = DelayedAction {
            action,
            secret: self.secret_version,
            canary: self.canary.as_ref().map_or(0, |canary| canary.version),
            main: self.main.version,
        };
        if delays {
            self.delayed.push(delayed);
        } else {
            self.check_preconditions(&delayed.action);
            self.execute(&delayed);
        }
    }

    /// Whether leaves of an authority may break.
    fn is_waived(&self, authority: u8) -> bool {
        self.policy.accept_outstanding_leaves || (authority == OLD && self.policy.compromised)
    }

    /// What must hold when a step is taken on a fresh observation.
    fn check_preconditions(&self, action: &RotationAction) {
        match action {
            RotationAction::Switch(role) => {
                let target = number(*role);
                for node in self.nodes.iter().filter(|node| !self.policy.excluded_nodes.contains(&node.name))
                {
                    assert!(node.written.contains(&target), "switch without delivery: {node:?}");
                }
            }
            RotationAction::WriteBundle { bundle, old, new, .. } => {
                for (authority, stays) in [(OLD, old), (NEW, new)] {
                    let is_removed = !stays && self.bundle(*bundle).anchors.contains(&authority);
                    let is_free = self.outstanding(authority).next().is_none();
                    assert!(!is_removed || is_free || self.is_waived(authority));
                    assert!(*stays || self.active != authority, "removal of the active anchor");
                }
            }
            RotationAction::RollBack(_) => assert!(!self.main.anchors.contains(&NEW), "others are affected"),
            RotationAction::Prepare | RotationAction::Withdraw | RotationAction::Discard => {}
        }
    }

    /// The API server: a write on a stale version fails.
    fn execute(&mut self, delayed: &DelayedAction) {
        let is_current = match &delayed.action {
            RotationAction::WriteBundle { bundle: BundleRole::Canary, .. } => {
                self.canary.as_ref().is_some_and(|canary| canary.version == delayed.canary)
            }
            RotationAction::WriteBundle { bundle: BundleRole::Main, .. } => self.main.version == delayed.main,
            RotationAction::RollBack(_) => true,
            _ => self.secret_version == delayed.secret,
        };
        if !is_current {
            return;
        }
        match &delayed.action {
            RotationAction::WriteBundle { bundle, old, new, taint } => {
                let bundle = self.bundle_mut(*bundle);
                for (authority, stays) in [(OLD, *old), (NEW, *new)] {
                    if stays {
                        bundle.anchors.insert(authority)
                    } else {
                        bundle.anchors.remove(&authority)
                    };
                }
                bundle.tainted = taint.iter().map(|role| number(*role)).collect();
                bundle.version += 1;
                return;
            }
            RotationAction::RollBack(_) => return self.policy.rollback = true,
            RotationAction::Prepare => self.next = Some(NEW),
            RotationAction::Switch(AuthorityRole::New) => {
                (self.active, self.next, self.previous) = (NEW, None, Some(OLD));
            }
            RotationAction::Switch(AuthorityRole::Old) => {
                (self.active, self.next, self.previous) = (OLD, Some(NEW), None);
                self.is_withdrawn = true;
            }
            RotationAction::Withdraw => self.is_withdrawn = true,
            RotationAction::Discard => self.next = None,
        }
        self.secret_version += 1;
    }

    /// One step of the world or of a controller.
    fn step(&mut self, random: &mut StepRandom) {
        let at = random.below(self.nodes.len().max(1));
        match random.below(24) {
            0..=5 => self.reconcile(false),
            6 => self.reconcile(true),
            7 if !self.delayed.is_empty() => {
                let index = random.below(self.delayed.len());
                let delayed = self.delayed.swap_remove(index);
                self.execute(&delayed);
                self.is_edited = true;
            }
            // A crash: what was in memory is gone, and is read again at some time.
            8 => {
                self.delayed.clear();
                (self.is_ledger_read, self.are_reports_read) = (false, false);
            }
            9 => (self.is_ledger_read, self.are_reports_read) = (true, true),
            10..=12 => self.apply(at),
            13 | 14 => self.read(at),
            15 => self.issue(random.below(3)),
            16 => self.now += [1, 60, 700, 4000][random.below(4)],
            17 => self.disturb(at, random),
            18 if self.nodes.len() < 6 => self.join(random),
            19 if self.nodes.len() > 1 && random.chance(30) => drop(self.nodes.remove(at)),
            20 if random.chance(25) => self.policy.paused = !self.policy.paused,
            21 if random.chance(8) => self.policy.rollback = true,
            22 => self.renew_tainted(),
            _ => {}
        }
    }

    fn disturb(&mut self, at: usize, random: &mut StepRandom) {
        match random.below(5) {
            4 => self.nodes[at].is_failed = !self.nodes[at].is_failed,
            0 => self.nodes[at].is_stopped = !self.nodes[at].is_stopped,
            1 if random.chance(20) && self.nodes[at].kind == LaggardKind::Node => {
                self.policy.excluded_nodes.extend([self.nodes[at].name.clone()])
            }
            2 if random.chance(30) && self.ended.is_none() => self.edit_by_hand(random),
            // A clock that is set back makes leaves valid again.
            3 if self.ended.is_none() && random.chance(30) => {
                self.now -= 300;
                self.clock_was_set_back = true;
                self.nodes.iter_mut().for_each(|node| node.is_tampered = true);
            }
            _ => {}
        }
    }

    fn edit_by_hand(&mut self, random: &mut StepRandom) {
        let role = if random.chance(50) { BundleRole::Canary } else { BundleRole::Main };
        let authority = if random.chance(50) { OLD } else { NEW };
        let bundle = self.bundle_mut(role);
        if !bundle.anchors.remove(&authority) && random.chance(50) {
            bundle.anchors.insert(authority);
        }
        bundle.version += 1;
        self.is_edited = true;
        self.nodes.iter_mut().for_each(|node| node.is_tampered = true);
    }

    /// Agents renew what is tainted or has expired.
    fn renew_tainted(&mut self) {
        for holder in 0..3 {
            let tainted = &self.main.tainted;
            let is_due = |leaf: &ModelLeaf| tainted.contains(&leaf.authority) || leaf.expires < self.now;
            let newest = self.leaves.iter().rfind(|leaf| leaf.holder == holder);
            if newest.is_some_and(is_due) {
                self.issue(holder);
            }
        }
    }

    /// Every valid leaf verifies for every consumer, or the rotation reports who does not trust it.
    fn check(&self) {
        // What the controllers report once they have read everything and are not paused.
        let observed =
            RotationObservation { leaves: Some(self.count_leaves()), ..self.observe_reports(true) };
        let policy = RotationPolicy { paused: false, ..self.policy.clone() };
        let decision = derive(&policy, &observed, time_at(self.now));
        for leaf in [OLD, NEW].into_iter().flat_map(|authority| self.outstanding(authority)) {
            if self.is_waived(leaf.authority) {
                continue;
            }
            for node in &self.nodes {
                // A bundle that somebody edited is repaired by one of the next steps, or by the publisher after the end.
                let is_repaired = (decision.action.is_some() || decision.phase.is_final())
                    && node.written == self.bundle(node.selects).anchors;
                let is_reported = self.policy.excluded_nodes.contains(&node.name)
                    || is_repaired
                    || decision.laggards.iter().any(|laggard| laggard.name == node.consumer_name());
                let trusts_written = node.written.contains(&leaf.authority);
                assert!(
                    trusts_written || is_reported,
                    "{leaf:?} is not trusted by {node:?}: {decision:?} in {observed:?}"
                );
                let reads = self.policy.require_read && !self.policy.compromised;
                let trusts_loaded = node.loaded.contains(&leaf.authority);
                assert!(
                    !reads || trusts_loaded || is_reported || node.is_tampered || self.policy.rollback,
                    "{leaf:?} is not trusted by the application of {node:?}"
                );
            }
        }
    }

    /// Lets everybody work until the rotation ends.
    fn heal(&mut self) {
        self.policy.paused = false;
        self.nodes.iter_mut().for_each(|node| (node.is_stopped, node.is_failed) = (false, false));
        (self.is_ledger_read, self.are_reports_read) = (true, true);
        self.delayed.clear();
        for _ in 0..1_000 {
            self.reconcile(false);
            if let Some(phase) = self.ended {
                let wanted = if phase == RotationPhase::Completed { NEW } else { OLD };
                assert_eq!(self.active, wanted, "{phase:?}");
                return;
            }
            self.renew_tainted();
            for at in 0..self.nodes.len() {
                self.apply(at);
                self.read(at);
            }
            self.now += 60;
            self.check();
        }
        panic!("the rotation does not end: {:?}", self.decide());
    }
}

#[test]
fn interleavings_never_break_trust_and_always_end() {
    let cases = if std::env::var_os("WINDLASS_LONG").is_some() { CASES.1 } else { CASES.0 };
    let mut ends: BTreeSet<RotationPhase> = BTreeSet::new();
    for seed in 1..=cases {
        let mut random = StepRandom(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut world = ModelWorld::new(&mut random);
        let explored = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                world.step(&mut random);
                if world.ended.is_some() {
                    break;
                }
                world.check();
            }
            world.heal();
        }));
        assert!(explored.is_ok(), "seed {seed}");
        ends.extend(world.ended);
        let active = AnchorSet::from([world.active]);
        // The publisher adds the active anchor if somebody removed it at the last moment.
        world.main.anchors.extend(&active);
        world.canary.iter_mut().for_each(|canary| canary.anchors.extend(&active));
        assert!(world.is_edited || world.main.anchors == active, "seed {seed}: {:?}", world.main);
        let canary = world.canary.as_ref();
        assert!(world.is_edited || canary.is_none_or(|canary| canary.anchors == active), "seed {seed}");
    }
    assert_eq!(ends, [RotationPhase::Completed, RotationPhase::RolledBack].into(), "both ends are reached");
}

/// A wrong rule is found: the model can fail.
#[test]
fn the_model_finds_a_switch_without_delivery() {
    let mut random = StepRandom(7);
    let mut world = ModelWorld::new(&mut random);
    world.policy = RotationPolicy { require_read: false, ..RotationPolicy::default() };
    world.canary = None;
    world.nodes.iter_mut().for_each(|node| node.selects = BundleRole::Main);
    world.reconcile(false);
    assert_eq!(world.next, Some(NEW));
    let switch = RotationAction::Switch(AuthorityRole::New);
    let checked = std::panic::AssertUnwindSafe(|| world.check_preconditions(&switch));
    assert!(std::panic::catch_unwind(checked).is_err());
}
