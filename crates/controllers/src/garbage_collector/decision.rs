//! Decision on one object, given its owners and dependents: a pure function.

/// State of the object, as the server returned it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectState {
    pub deleting: bool,
    /// The object has the finalizer `orphan`.
    pub orphan: bool,
    /// The object has the finalizer `foregroundDeletion`.
    pub foreground: bool,
}

/// Owner reference with the state of the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedOwner {
    /// UID of the owner in the reference.
    pub uid: String,
    pub state: OwnerState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// The owner does not exist, or has another UID.
    Absent,
    /// The owner exists and does not wait for its dependents.
    Solid,
    /// The owner is being deleted in the foreground and waits for its dependents.
    Waiting,
    /// The reference is invalid: a cluster-scoped object cannot have a namespaced owner.
    Invalid,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DependentState {
    /// The dependent blocks the deletion of its owner.
    pub blocks: bool,
    /// The dependent is itself being deleted in the foreground.
    pub waiting: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionPropagation {
    /// Dependents stay and lose their owner reference.
    Orphan,
    /// Dependents are deleted after the object.
    Background,
    /// Dependents are deleted before the object.
    Foreground,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GarbageAction {
    /// The object needs no change.
    Leave,
    /// Remove it from the owner references of its dependents, then remove the finalizer `orphan`.
    Orphan,
    /// Reconcile its dependents, which have to be deleted first.
    AwaitDependents,
    /// Remove the finalizer `foregroundDeletion`.
    Release,
    /// Remove these owners from its owner references.
    DropOwners(Vec<String>),
    /// Delete the object with this propagation policy.
    Delete(DeletionPropagation),
    /// Unblock its owners, then delete it in the foreground: it is part of a cycle.
    UnblockAndDelete,
}

/// Decides what to do with an object, given its owners.
pub fn decide(object: ObjectState, owners: &[ResolvedOwner], dependents: &[DependentState]) -> GarbageAction {
    if object.deleting {
        return decide_deleting(object, dependents);
    }
    // An invalid reference is a mistake of its author; deleting the object would make it worse.
    if owners.is_empty() || owners.iter().any(|owner| owner.state == OwnerState::Invalid) {
        return GarbageAction::Leave;
    }
    let (solid, lost): (Vec<&ResolvedOwner>, Vec<&ResolvedOwner>) =
        owners.iter().partition(|owner| owner.state == OwnerState::Solid);
    if !solid.is_empty() {
        return match lost.is_empty() {
            true => GarbageAction::Leave,
            false => GarbageAction::DropOwners(lost.iter().map(|owner| owner.uid.clone()).collect()),
        };
    }
    let waited_for = owners.iter().any(|owner| owner.state == OwnerState::Waiting);
    if waited_for && !dependents.is_empty() {
        // An owner that waits for this object, and a dependent that waits for its own dependents: they may wait for
        // each other.
        return match dependents.iter().any(|dependent| dependent.waiting) {
            true => GarbageAction::UnblockAndDelete,
            false => GarbageAction::Delete(DeletionPropagation::Foreground),
        };
    }
    GarbageAction::Delete(match object {
        ObjectState { orphan: true, .. } => DeletionPropagation::Orphan,
        ObjectState { foreground: true, .. } => DeletionPropagation::Foreground,
        _ => DeletionPropagation::Background,
    })
}

/// Decides on an object that is being deleted and may wait for its finalizers.
fn decide_deleting(object: ObjectState, dependents: &[DependentState]) -> GarbageAction {
    match object {
        ObjectState { orphan: true, .. } => GarbageAction::Orphan,
        ObjectState { foreground: true, .. } if dependents.iter().any(|d| d.blocks) => {
            GarbageAction::AwaitDependents
        }
        ObjectState { foreground: true, .. } => GarbageAction::Release,
        _ => GarbageAction::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::OwnerState::{Absent, Invalid, Solid, Waiting};
    use super::*;

    const PLAIN: ObjectState = ObjectState { deleting: false, orphan: false, foreground: false };
    const GOING: ObjectState = ObjectState { deleting: true, ..PLAIN };
    const FREE: DependentState = DependentState { blocks: false, waiting: false };
    const BLOCKING: DependentState = DependentState { blocks: true, ..FREE };
    const CIRCULAR: DependentState = DependentState { blocks: true, waiting: true };

    fn decided(object: ObjectState, states: &[OwnerState], dependents: &[DependentState]) -> GarbageAction {
        let owner = |(i, state): (usize, &OwnerState)| ResolvedOwner { uid: i.to_string(), state: *state };
        let owners: Vec<ResolvedOwner> = states.iter().enumerate().map(owner).collect();
        decide(object, &owners, dependents)
    }

    #[test]
    fn owners_decide_over_an_object() {
        let drop = |uids: &[&str]| GarbageAction::DropOwners(uids.iter().map(|u| (*u).into()).collect());
        let table = [
            (vec![], vec![], GarbageAction::Leave),
            (vec![Solid], vec![], GarbageAction::Leave),
            (vec![Absent], vec![], GarbageAction::Delete(DeletionPropagation::Background)),
            (vec![Absent], vec![BLOCKING], GarbageAction::Delete(DeletionPropagation::Background)),
            (vec![Absent, Absent], vec![], GarbageAction::Delete(DeletionPropagation::Background)),
            (vec![Solid, Absent], vec![], drop(&["1"])),
            (vec![Absent, Solid, Waiting], vec![FREE], drop(&["0", "2"])),
            (vec![Waiting], vec![], GarbageAction::Delete(DeletionPropagation::Background)),
            (vec![Waiting, Absent], vec![FREE], GarbageAction::Delete(DeletionPropagation::Foreground)),
            (vec![Waiting], vec![FREE, CIRCULAR], GarbageAction::UnblockAndDelete),
            (vec![Invalid], vec![], GarbageAction::Leave),
            (vec![Invalid, Absent], vec![], GarbageAction::Leave),
            (vec![Solid, Invalid, Absent], vec![], GarbageAction::Leave),
        ];
        for (owners, dependents, expected) in table {
            let found = decided(PLAIN, &owners, &dependents);
            assert_eq!(found, expected, "owners {owners:?}, dependents {dependents:?}");
        }
    }

    #[test]
    fn finalizers_written_beforehand_choose_the_policy() {
        let orphan = ObjectState { orphan: true, ..PLAIN };
        let foreground = ObjectState { foreground: true, ..PLAIN };
        assert_eq!(decided(orphan, &[Absent], &[]), GarbageAction::Delete(DeletionPropagation::Orphan));
        assert_eq!(
            decided(foreground, &[Absent], &[]),
            GarbageAction::Delete(DeletionPropagation::Foreground)
        );
        assert_eq!(decided(orphan, &[Solid], &[]), GarbageAction::Leave);
        assert_eq!(decided(foreground, &[], &[BLOCKING]), GarbageAction::Leave);
    }

    #[test]
    fn an_object_that_is_going_is_seen_off() {
        let orphan = ObjectState { orphan: true, ..GOING };
        let foreground = ObjectState { foreground: true, ..GOING };
        let both = ObjectState { orphan: true, foreground: true, ..GOING };
        let table = [
            (GOING, vec![], vec![], GarbageAction::Leave),
            (GOING, vec![Absent], vec![BLOCKING], GarbageAction::Leave),
            (orphan, vec![Absent], vec![], GarbageAction::Orphan),
            (orphan, vec![], vec![FREE], GarbageAction::Orphan),
            (both, vec![], vec![BLOCKING], GarbageAction::Orphan),
            (foreground, vec![], vec![], GarbageAction::Release),
            (foreground, vec![], vec![FREE], GarbageAction::Release),
            (foreground, vec![], vec![FREE, BLOCKING], GarbageAction::AwaitDependents),
            (foreground, vec![], vec![CIRCULAR], GarbageAction::AwaitDependents),
        ];
        for (object, owners, dependents, expected) in table {
            let found = decided(object, &owners, &dependents);
            assert_eq!(found, expected, "{object:?}, {owners:?}, {dependents:?}");
        }
    }
}
