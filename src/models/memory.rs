//! How much memory a model takes, how much is free, and whether a draft has room beside its target.

mod free;
mod needs;

use std::fmt;

pub use free::available;
pub use needs::Needs;

use crate::words::size;

/// Why a draft is not loaded beside its target. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    target: u64,
    draft: u64,
    available: u64,
    reserve: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [target, draft, available, reserve] = [self.target, self.draft, self.available, self.reserve].map(size);
        write!(
            f,
            "the draft needs {draft} beside the target's {target}, and {available} are free ({reserve} of it are left \
             to other programs)"
        )
    }
}

/// What is left to other programs of so many free bytes: a tenth, and at least 200 MB; never more than 2 GB.
pub fn reserve(available: u64) -> u64 {
    (available / 10).clamp(200_000_000, 2_000_000_000)
}

/// Whether target and draft fit into `available` bytes together, each with a context of `n_ctx` tokens.
///
/// # Errors
/// The numbers, when they do not fit.
pub fn room_for_draft(target: &Needs, draft: &Needs, n_ctx: usize, available: u64) -> Result<(), Shortage> {
    let reserve = reserve(available);
    let shortage = Shortage { target: target.at(n_ctx), draft: draft.at(n_ctx), available, reserve };
    let needed = shortage.target.saturating_add(shortage.draft).saturating_add(reserve);
    if needed <= available { Ok(()) } else { Err(shortage) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_without_room_is_told_in_numbers() {
        let target = Needs { weights: 1_200_000_000, kv_per_token: 28 * 1024, compute: 50_000_000 };
        let draft = Needs { weights: 500_000_000, kv_per_token: 12 * 1024, compute: 50_000_000 };
        let both = target.at(2048) + draft.at(2048);
        assert!(room_for_draft(&target, &draft, 2048, both + 250_000_000).is_ok());
        // What is left to others.
        assert!(room_for_draft(&target, &draft, 2048, both + 150_000_000).is_err());
        let shortage = room_for_draft(&target, &draft, 2048, 1_100_000_000).unwrap_err();
        let line = "the draft needs 579 MB beside the target's 1.31 GB, and 1.10 GB are free (200 MB of it are left to other programs)";
        assert_eq!(shortage.to_string(), line);
    }
}
