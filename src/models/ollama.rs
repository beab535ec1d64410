//! What Ollama has on this disk, found in place and never changed:
//!
//! ```text
//! manifests/HOST/OWNER/NAME/TAG      JSON: layers with media type, digest and size
//! blobs/sha256-DIGEST                their bytes; the model's is a GGUF
//! ```

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::facts::kind_of;
use super::registry::{Entry, SamplingDefaults, Source};
use crate::error::{Error, Result};
use crate::paths::non_empty;

const HOST: &str = "registry.ollama.ai";
const OWNER: &str = "library";
const TAG: &str = "latest";
/// A manifest is a kilobyte.
const MOST: u64 = 1 << 20;

#[derive(Deserialize)]
struct Manifest {
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
struct Layer {
    #[serde(rename = "mediaType")]
    media_type: String,
    digest: String,
}

/// The values of a params layer that mean the same here.
const PARAMS: [&str; 5] = ["temperature", "top_k", "top_p", "min_p", "repeat_penalty"];

/// One of Ollama's folders of models.
#[derive(Clone, Debug)]
pub(super) struct Ollama {
    root: PathBuf,
}

impl Ollama {
    /// The folders that there are: `OLLAMA_MODELS`, the user's, the service's.
    pub(super) fn all() -> Vec<Self> {
        let roots = match non_empty("OLLAMA_MODELS") {
            Some(root) => vec![PathBuf::from(root)],
            None => dirs::home_dir()
                .map(|home| home.join(".ollama/models"))
                .into_iter()
                .chain(["/usr/share/ollama/.ollama/models", "/var/lib/ollama/.ollama/models"].map(PathBuf::from))
                .collect(),
        };
        roots.into_iter().filter(|root| root.join("manifests").is_dir()).map(|root| Self { root }).collect()
    }

    /// The blob of a sha256, where it is here and has so many bytes.
    pub(super) fn blob_of(&self, sha256: &str, bytes: Option<u64>) -> Option<PathBuf> {
        let blob = self.root.join("blobs").join(format!("sha256-{sha256}"));
        let meta = blob.metadata().ok().filter(std::fs::Metadata::is_file)?;
        bytes.is_none_or(|bytes| bytes == meta.len()).then_some(blob)
    }

    /// What is here, as it is named: `NAME:TAG`, with its bytes.
    pub(super) fn list(&self) -> Vec<(String, PathBuf, u64)> {
        let mut all = Vec::new();
        let root = self.root.join("manifests");
        for host in names(&root) {
            for owner in names(&root.join(&host)) {
                for name in names(&root.join(&host).join(&owner)) {
                    for tag in names(&root.join(&host).join(&owner).join(&name)) {
                        let called = match (host.as_str(), owner.as_str()) {
                            (HOST, OWNER) => format!("{name}:{tag}"),
                            (HOST, _) => format!("{owner}/{name}:{tag}"),
                            _ => format!("{host}/{owner}/{name}:{tag}"),
                        };
                        let blob =
                            self.manifest(&[&host, &owner, &name, &tag]).and_then(|manifest| self.model(&manifest));
                        if let Some((blob, meta)) = blob.and_then(|blob| Some((blob.clone(), blob.metadata().ok()?))) {
                            all.push((called, blob, meta.len()));
                        }
                    }
                }
            }
        }
        all.sort();
        all
    }

    fn place(&self, parts: &[&str; 4]) -> PathBuf {
        parts.iter().fold(self.root.join("manifests"), |path, part| path.join(part))
    }

    fn manifest(&self, parts: &[&str; 4]) -> Option<Manifest> {
        serde_json::from_str(&small(&self.place(parts))?).ok()
    }

    fn layer(&self, manifest: &Manifest, kind: &str) -> Option<PathBuf> {
        let wanted = format!("application/vnd.ollama.image.{kind}");
        let layer = manifest.layers.iter().find(|layer| layer.media_type == wanted)?;
        // A name from a file that somebody else wrote, before it becomes a path.
        let hex = layer
            .digest
            .strip_prefix("sha256:")
            .filter(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        Some(self.root.join("blobs").join(format!("sha256-{hex}")))
    }

    fn model(&self, manifest: &Manifest) -> Option<PathBuf> {
        self.layer(manifest, "model")
    }

    /// The entry of a model, its parameters and its system prompt taken over.
    fn entry(&self, called: &str, parts: &[&str; 4]) -> Option<Entry> {
        let manifest = self.manifest(parts)?;
        let blob = self.model(&manifest).filter(|blob| blob.is_file())?;
        let text = |kind: &str| self.layer(&manifest, kind).and_then(|path| small(&path));
        let params = || {
            let mut params: serde_json::Map<_, _> = serde_json::from_str(&text("params")?).ok()?;
            params.retain(|name, _| PARAMS.contains(&name.as_str()));
            serde_json::from_value(params.into()).ok().filter(|own: &SamplingDefaults| own.problem().is_none())
        };
        Some(Entry {
            name: format!("ollama:{called}"),
            // Its templates are Go's: only which kind they are of can be told.
            fallback_template: text("template").and_then(|text| kind_of(&text)?.1).map(str::to_owned),
            system: text("system").filter(|text| !text.trim().is_empty()),
            sampling: params().unwrap_or_default(),
            sources: vec![Source { path: Some(blob.display().to_string()), ..Source::default() }],
            ..Entry::default()
        })
    }
}

/// The entry of `NAME[:TAG]`, `OWNER/NAME[:TAG]` or `HOST/OWNER/NAME[:TAG]`.
///
/// # Errors
/// When Ollama does not have it here.
pub(super) fn find(address: &str) -> Result<Entry> {
    // A host may have a port.
    let (path, tag) = address.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).unwrap_or((address, TAG));
    let parts: Vec<&str> = path.split('/').collect();
    let parts = match parts.as_slice() {
        [name] => [HOST, OWNER, name, tag],
        [owner, name] => [HOST, owner, name, tag],
        [host, owner, name] => [host, owner, name, tag],
        _ => return Err(bad(address)),
    };
    let plain = |part: &&str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c))
    };
    if !parts.iter().all(plain) {
        return Err(bad(address));
    }
    let folders = Ollama::all();
    if let Some(entry) = folders.iter().find_map(|own| own.entry(address, &parts)) {
        return Ok(entry);
    }
    if folders.iter().any(|own| own.place(&parts).is_file()) {
        let error = Error::model(format!("what Ollama has of '{address}' is damaged, or not a GGUF"));
        return Err(error.hint(format!("`ollama pull {address}` may repair it")));
    }
    let known: Vec<String> = folders.iter().flat_map(Ollama::list).map(|(name, ..)| name).collect();
    let error = Error::model(format!("Ollama has no '{address}' on this disk"));
    Err(match known.as_slice() {
        [] => error.hint("it has no models here; OLLAMA_MODELS names another folder"),
        known => error.hint(format!("it has {}", known.join(", "))),
    })
}

fn bad(address: &str) -> Error {
    Error::usage(format!("'ollama:{address}' is not an address")).hint("write ollama:NAME or ollama:NAME:TAG")
}

fn small(path: &Path) -> Option<String> {
    path.metadata().ok().filter(|meta| meta.is_file() && meta.len() <= MOST)?;
    std::fs::read_to_string(path).ok()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}
