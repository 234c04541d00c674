//! What to do with one object, given its owners and its dependents: a pure function.

/// What matters of the object itself, as the server has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// It has the finalizer `orphan`.
    pub orphan: bool,
    /// It has the finalizer `foregroundDeletion`.
    pub foreground: bool,
}

/// One owner reference of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The owner's UID, as the reference has it.
    pub uid: String,
    /// What became of that owner.
    pub state: OwnerState,
}

/// What became of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// There is no such object, or it has another UID.
    Absent,
    /// It is there.
    Solid,
    /// It is being deleted in the foreground: it waits for its dependents.
    Waiting,
    /// It cannot be: it would live in a namespace, and the object does not.
    Invalid,
}

/// One object that the object owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dependent {
    /// The owner may not go before it.
    pub blocks: bool,
    /// It is itself being deleted in the foreground.
    pub waiting: bool,
}

/// What happens to the dependents of an object that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// They stay.
    Orphan,
    /// They go later.
    Background,
    /// They go first.
    Foreground,
}

/// What to do with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Leave,
    /// Take it out of its dependents' owner references, then take away the finalizer `orphan`.
    Orphan,
    /// Have its dependents looked at; they have to go first.
    AwaitDependents,
    /// Take away the finalizer `foregroundDeletion`.
    Release,
    /// Take these owners out of its owner references.
    DropOwners(Vec<String>),
    /// Delete it.
    Delete(Policy),
    /// Let its owners go without it, then delete it in the foreground: it is part of a circle.
    UnblockAndDelete,
}

/// Decides what to do with an object.
pub fn decide(object: Object, owners: &[Owner], dependents: &[Dependent]) -> Action {
    if object.deleting {
        return going(object, dependents);
    }
    // An impossible owner is a mistake of whoever wrote it; deleting would make it worse.
    if owners.is_empty() || owners.iter().any(|owner| owner.state == OwnerState::Invalid) {
        return Action::Leave;
    }
    let (solid, lost): (Vec<&Owner>, Vec<&Owner>) =
        owners.iter().partition(|owner| owner.state == OwnerState::Solid);
    if !solid.is_empty() {
        return match lost.is_empty() {
            true => Action::Leave,
            false => Action::DropOwners(lost.iter().map(|owner| owner.uid.clone()).collect()),
        };
    }
    let waited_for = owners.iter().any(|owner| owner.state == OwnerState::Waiting);
    if waited_for && !dependents.is_empty() {
        // An owner that waits for it, and a dependent that waits for its own: they may well wait
        // for each other.
        return match dependents.iter().any(|dependent| dependent.waiting) {
            true => Action::UnblockAndDelete,
            false => Action::Delete(Policy::Foreground),
        };
    }
    Action::Delete(match object {
        Object { orphan: true, .. } => Policy::Orphan,
        Object { foreground: true, .. } => Policy::Foreground,
        _ => Policy::Background,
    })
}

/// An object that is being deleted already may still have to be seen off.
fn going(object: Object, dependents: &[Dependent]) -> Action {
    match object {
        Object { orphan: true, .. } => Action::Orphan,
        Object { foreground: true, .. } if dependents.iter().any(|d| d.blocks) => {
            Action::AwaitDependents
        }
        Object { foreground: true, .. } => Action::Release,
        _ => Action::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::OwnerState::{Absent, Invalid, Solid, Waiting};
    use super::*;

    const PLAIN: Object = Object { deleting: false, orphan: false, foreground: false };
    const GOING: Object = Object { deleting: true, ..PLAIN };
    const FREE: Dependent = Dependent { blocks: false, waiting: false };
    const BLOCKING: Dependent = Dependent { blocks: true, ..FREE };
    const CIRCULAR: Dependent = Dependent { blocks: true, waiting: true };

    fn decided(object: Object, states: &[OwnerState], dependents: &[Dependent]) -> Action {
        let owner = |(i, state): (usize, &OwnerState)| Owner { uid: i.to_string(), state: *state };
        let owners: Vec<Owner> = states.iter().enumerate().map(owner).collect();
        decide(object, &owners, dependents)
    }

    #[test]
    fn owners_decide_over_an_object() {
        let drop = |uids: &[&str]| Action::DropOwners(uids.iter().map(|u| (*u).into()).collect());
        let table = [
            (vec![], vec![], Action::Leave),
            (vec![Solid], vec![], Action::Leave),
            (vec![Absent], vec![], Action::Delete(Policy::Background)),
            (vec![Absent], vec![BLOCKING], Action::Delete(Policy::Background)),
            (vec![Absent, Absent], vec![], Action::Delete(Policy::Background)),
            (vec![Solid, Absent], vec![], drop(&["1"])),
            (vec![Absent, Solid, Waiting], vec![FREE], drop(&["0", "2"])),
            (vec![Waiting], vec![], Action::Delete(Policy::Background)),
            (vec![Waiting, Absent], vec![FREE], Action::Delete(Policy::Foreground)),
            (vec![Waiting], vec![FREE, CIRCULAR], Action::UnblockAndDelete),
            (vec![Invalid], vec![], Action::Leave),
            (vec![Invalid, Absent], vec![], Action::Leave),
            (vec![Solid, Invalid, Absent], vec![], Action::Leave),
        ];
        for (owners, dependents, expected) in table {
            let found = decided(PLAIN, &owners, &dependents);
            assert_eq!(found, expected, "owners {owners:?}, dependents {dependents:?}");
        }
    }

    #[test]
    fn finalizers_written_beforehand_choose_the_policy() {
        let orphan = Object { orphan: true, ..PLAIN };
        let foreground = Object { foreground: true, ..PLAIN };
        assert_eq!(decided(orphan, &[Absent], &[]), Action::Delete(Policy::Orphan));
        assert_eq!(decided(foreground, &[Absent], &[]), Action::Delete(Policy::Foreground));
        assert_eq!(decided(orphan, &[Solid], &[]), Action::Leave);
        assert_eq!(decided(foreground, &[], &[BLOCKING]), Action::Leave);
    }

    #[test]
    fn an_object_that_is_going_is_seen_off() {
        let orphan = Object { orphan: true, ..GOING };
        let foreground = Object { foreground: true, ..GOING };
        let both = Object { orphan: true, foreground: true, ..GOING };
        let table = [
            (GOING, vec![], vec![], Action::Leave),
            (GOING, vec![Absent], vec![BLOCKING], Action::Leave),
            (orphan, vec![Absent], vec![], Action::Orphan),
            (orphan, vec![], vec![FREE], Action::Orphan),
            (both, vec![], vec![BLOCKING], Action::Orphan),
            (foreground, vec![], vec![], Action::Release),
            (foreground, vec![], vec![FREE], Action::Release),
            (foreground, vec![], vec![FREE, BLOCKING], Action::AwaitDependents),
            (foreground, vec![], vec![CIRCULAR], Action::AwaitDependents),
        ];
        for (object, owners, dependents, expected) in table {
            let found = decided(object, &owners, &dependents);
            assert_eq!(found, expected, "{object:?}, {owners:?}, {dependents:?}");
        }
    }
}
