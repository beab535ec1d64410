//! Where qchat keeps its files: config, data and cache folders, or one folder for all (`QCHAT_HOME`).
//!
//! Only names are made here; nothing is created until somebody writes.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The folders of this user.
#[derive(Clone, Debug)]
pub struct Paths {
    pub config: PathBuf,
    pub data: PathBuf,
    pub cache: PathBuf,
}

impl Paths {
    /// From `QCHAT_HOME`, else from the platform's conventions.
    ///
    /// # Errors
    /// When neither `QCHAT_HOME` nor a home folder is known.
    pub fn from_env() -> Result<Self> {
        if let Some(home) = non_empty("QCHAT_HOME") {
            return Ok(Self::under(Path::new(&home)));
        }
        match (dirs::config_dir(), dirs::data_dir(), dirs::cache_dir()) {
            (Some(config), Some(data), Some(cache)) => {
                Ok(Self { config: config.join("qchat"), data: data.join("qchat"), cache: cache.join("qchat") })
            }
            _ => Err(Error::failed("no home folder is known").hint("set QCHAT_HOME to a folder for qchat's files")),
        }
    }

    /// Everything below one folder.
    pub fn under(home: &Path) -> Self {
        Self { config: home.join("config"), data: home.join("data"), cache: home.join("cache") }
    }

    pub fn models(&self) -> PathBuf {
        self.data.join("models")
    }

    /// The prefix cache.
    pub fn prefixes(&self) -> PathBuf {
        self.cache.join("kv-v1")
    }

    /// What drafts cost, by pair of models.
    pub fn speculation(&self) -> PathBuf {
        self.cache.join("speculation-v1")
    }

    /// What `doctor --tune` found.
    pub fn tuning(&self) -> PathBuf {
        self.cache.join("tuning-v1")
    }

    /// Digests of model files.
    pub fn identities(&self) -> PathBuf {
        self.cache.join("identity-v1")
    }

    pub fn chats(&self) -> PathBuf {
        self.data.join("chats")
    }

    pub fn history(&self) -> PathBuf {
        self.data.join("history")
    }

    pub fn user_registry(&self) -> PathBuf {
        self.config.join("models.toml")
    }

    pub fn config_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// The Hugging Face hub cache: `HF_HUB_CACHE`, `HF_HOME/hub`, else `~/.cache/huggingface/hub`.
    pub fn hugging_face(&self) -> PathBuf {
        if let Some(cache) = non_empty("HF_HUB_CACHE") {
            return cache.into();
        }
        self.hugging_face_home().join("hub")
    }

    /// Where `huggingface_hub` keeps its cache and its token.
    pub fn hugging_face_home(&self) -> PathBuf {
        if let Some(home) = non_empty("HF_HOME") {
            return home.into();
        }
        // huggingface_hub uses ~/.cache on every platform; XDG_CACHE_HOME moves it.
        let cache = non_empty("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| dirs::home_dir().map(|home| home.join(".cache")))
            .unwrap_or_else(|| self.cache.clone());
        cache.join("huggingface")
    }
}

/// An environment variable that is set to something.
pub fn non_empty(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// Puts a file in place whole or not at all, whoever reads or is killed meanwhile; its folder is made where it is missing.
pub fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
    std::io::Write::write_all(&mut file, bytes)?;
    file.persist(path)?;
    Ok(())
}

/// Whether a file is not there, also because a part of its path is no folder.
pub fn is_missing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// `~/x` as a shell would have it.
pub fn expand_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), dirs::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}
