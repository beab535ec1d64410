//! Measurements that are kept in the cache folder: each in a file of its own, with what it belongs to. Another machine,
//! build or file of a model begins anew; what cannot be read was never measured.

use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::engine::llama;
use crate::models::Resolved;
use crate::paths;

/// The place of one measurement.
pub(super) struct Slot<K> {
    file: PathBuf,
    key: K,
}

#[derive(Serialize, Deserialize)]
struct Kept<K, V> {
    key: K,
    value: V,
}

/// The build and the machine that a measurement belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Here {
    build: String,
    machine: String,
}

impl Here {
    pub(super) fn new() -> Self {
        let build = format!("{} {}", env!("CARGO_PKG_VERSION"), llama::build());
        Self { build, machine: llama::machine() }
    }
}

/// A model by the name and the size of its file.
pub(super) fn identity(model: &Resolved) -> (String, u64) {
    let name = model.file.file_name().map(|name| name.to_string_lossy().into_owned());
    (name.unwrap_or_default(), model.bytes)
}

impl<K: PartialEq + Serialize + DeserializeOwned> Slot<K> {
    pub(super) fn new(folder: &Path, key: K) -> Self {
        let text = serde_json::to_string(&key).unwrap_or_default();
        let digest = format!("{:x}", Sha256::digest(text));
        Self { file: folder.join(format!("{}.json", &digest[..16])), key }
    }

    pub(super) fn read<V: DeserializeOwned>(&self) -> Option<V> {
        let kept: Kept<K, V> = serde_json::from_slice(&std::fs::read(&self.file).ok()?).ok()?;
        (kept.key == self.key).then_some(kept.value)
    }

    /// # Errors
    /// When it cannot be written.
    pub(super) fn keep<V: Serialize>(&self, value: V) -> io::Result<()> {
        paths::replace(&self.file, &serde_json::to_vec_pretty(&Kept { key: &self.key, value })?)
    }
}
