//! Progress bars of plain text.

/// Narrowest bar that shows anything.
const MIN_WIDTH: usize = 10;
/// Wider bars show nothing more.
const MAX_WIDTH: usize = 40;

/// Formats a bar of `[####----]`, as wide as the room permits. The bar is full only if everything is
/// done, and not empty if anything is.
pub fn bar(done: u64, total: u64, room: usize) -> String {
    let width = room.saturating_sub(2).clamp(MIN_WIDTH, MAX_WIDTH);
    let filled = match (done, total) {
        (_, 0) => width,
        (done, total) if done >= total => width,
        (0, _) => 0,
        (done, total) => {
            let share = u128::from(done) * width as u128 / u128::from(total);
            usize::try_from(share).unwrap_or(width).clamp(1, width - 1)
        }
    };
    format!("[{}{}]", "#".repeat(filled), "-".repeat(width - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_full_only_when_done() {
        for (done, total, room, wanted) in [
            (0, 10, 12, "[----------]"),
            (5, 10, 12, "[#####-----]"),
            (1, 1000, 12, "[#---------]"),
            (999, 1000, 12, "[#########-]"),
            (10, 10, 12, "[##########]"),
            (12, 10, 12, "[##########]"),
            (0, 0, 12, "[##########]"),
            (u64::MAX - 1, u64::MAX, 12, "[#########-]"),
            (1, 2, 0, "[#####-----]"),
        ] {
            assert_eq!(bar(done, total, room), wanted, "{done} of {total}");
        }
        assert_eq!(bar(1, 2, 1000).len(), MAX_WIDTH + 2);
    }
}
