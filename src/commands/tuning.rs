//! What `doctor --tune` found best for a model: kept per machine, build and model, used by `run`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::engine::llama;
use crate::measure::tune::Tuned;
use crate::models::Resolved;
use crate::paths::{self, Paths};

/// What a measurement belongs to; another machine, build or file begins anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Key {
    build: String,
    machine: String,
    gpu_layers: Option<u32>,
    model: (String, u64),
}

#[derive(Serialize, Deserialize)]
struct File {
    key: Key,
    tuned: Tuned,
}

impl Key {
    fn of(model: &Resolved, gpu_layers: Option<u32>) -> Self {
        let name = model.file.file_name().map(|name| name.to_string_lossy().into_owned());
        Self {
            build: format!("{} {}", env!("CARGO_PKG_VERSION"), llama::build()),
            machine: llama::machine(),
            gpu_layers,
            model: (name.unwrap_or_default(), model.bytes),
        }
    }

    fn file(&self, paths: &Paths) -> PathBuf {
        let text = serde_json::to_string(self).unwrap_or_default();
        let name = Sha256::digest(text).iter().take(8).fold(String::new(), |name, byte| format!("{name}{byte:02x}"));
        paths.cache.join("tuning-v1").join(format!("{name}.json"))
    }
}

/// What is known of a model here.
pub(super) fn known(model: &Resolved, gpu_layers: Option<u32>, paths: &Paths) -> Option<Tuned> {
    // Most have never been tuned, and naming the machine wakes llama.cpp up.
    if !paths.cache.join("tuning-v1").exists() {
        return None;
    }
    let key = Key::of(model, gpu_layers);
    let kept: File = serde_json::from_slice(&std::fs::read(key.file(paths)).ok()?).ok()?;
    (kept.key == key).then_some(kept.tuned)
}

/// Keeps it for `run`.
///
/// # Errors
/// When it cannot be written.
pub(super) fn keep(model: &Resolved, gpu_layers: Option<u32>, tuned: &Tuned, paths: &Paths) -> std::io::Result<()> {
    let key = Key::of(model, gpu_layers);
    let file = key.file(paths);
    paths::replace(&file, &serde_json::to_vec_pretty(&File { key, tuned: tuned.clone() })?)
}
