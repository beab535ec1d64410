//! What `doctor --tune` found best for a model: kept per machine, build and model, used by `run`.

use serde::{Deserialize, Serialize};

use super::slot::{Here, Slot, identity};
use crate::measure::tune::Tuned;
use crate::models::Resolved;
use crate::paths::Paths;

#[derive(PartialEq, Serialize, Deserialize)]
struct Key {
    #[serde(flatten)]
    here: Here,
    gpu_layers: Option<u32>,
    model: (String, u64),
}

fn slot(model: &Resolved, gpu_layers: Option<u32>, paths: &Paths) -> Slot<Key> {
    Slot::new(&paths.tuning(), Key { here: Here::new(), gpu_layers, model: identity(model) })
}

/// What is known of a model here.
pub(super) fn known(model: &Resolved, gpu_layers: Option<u32>, paths: &Paths) -> Option<Tuned> {
    // Most have never tuned anything, and naming the machine wakes llama.cpp up.
    paths.tuning().exists().then(|| slot(model, gpu_layers, paths).read()).flatten()
}

/// Keeps it for `run`.
///
/// # Errors
/// When it cannot be written.
pub(super) fn keep(model: &Resolved, gpu_layers: Option<u32>, tuned: &Tuned, paths: &Paths) -> std::io::Result<()> {
    slot(model, gpu_layers, paths).keep(tuned)
}
