//! Entries of a hit on their way from disk: read and verified by threads of their own while a context is made, in order.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::prefix::{Entry, Header, Name, Plan, Store};

/// Threads that read and verify: on one core a seal takes longer than a copy.
pub(super) const READERS: usize = 2;
/// Blocks that each of them is ahead: while a context is made, a document of a few thousand tokens is read.
const AHEAD: usize = 4;

/// What is being read of a hit.
pub(super) struct Coming {
    pub(super) state: Name,
    pub(super) plan: Plan,
    pub(super) block: Option<usize>,
    /// The tokens that the context held, and those of the prompt.
    pub(super) held: usize,
    pub(super) of: usize,
    /// Every so manieth entry comes through one of these; none where nothing is loaded.
    pub(super) lanes: Vec<Lane>,
}

pub(super) struct Lane {
    pub(super) take: Receiver<Read>,
    pub(super) give_back: SyncSender<Vec<u8>>,
}

/// An entry whose seal holds.
pub(super) struct Read {
    pub(super) payload: Vec<u8>,
    pub(super) path: PathBuf,
    pub(super) header: Header,
}

/// Reads and verifies the planned entries, each thread its share, one ahead of what is taken.
pub(super) fn read_ahead(store: &Arc<Store>, entries: Vec<Entry>, plan: &Plan) -> Vec<Lane> {
    let mut shares: Vec<Vec<Entry>> = (0..READERS).map(|_| Vec::new()).collect();
    for (index, entry) in entries.into_iter().skip(plan.from).take(plan.to - plan.from).enumerate() {
        shares[index % READERS].push(entry);
    }
    let lane = |share: Vec<Entry>| {
        let store = Arc::clone(store);
        let (give, take) = sync_channel(AHEAD);
        // Buffers go round: fresh pages cost as much as reading into them.
        let (give_back, take_back) = sync_channel::<Vec<u8>>(AHEAD + 1);
        std::thread::spawn(move || {
            for mut entry in share {
                let mut payload = take_back.try_recv().unwrap_or_default();
                if store.payload(&mut entry, &mut payload).is_none() {
                    break;
                }
                entry.touch();
                if give.send(Read { payload, path: entry.path, header: entry.header }).is_err() {
                    break;
                }
            }
        });
        Lane { take, give_back }
    };
    shares.into_iter().map(lane).collect()
}
