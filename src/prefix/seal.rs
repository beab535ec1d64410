//! The key that seals blocks: 32 random bytes in the cache folder, readable by its owner alone.

use std::io::{self, Write as _};
use std::path::Path;

/// Bytes of a seal.
pub(super) const SEAL: usize = 32;

/// The key of one cache folder.
#[derive(Clone)]
pub struct SealKey {
    key: [u8; 32],
    id: [u8; 8],
}

impl SealKey {
    pub(super) fn of(key: [u8; 32]) -> Self {
        let digest = blake3::derive_key("qchat 2026-11 seal key id", &key);
        let mut id = [0; 8];
        id.copy_from_slice(&digest[..8]);
        Self { key, id }
    }

    /// Reads the key at `path`; none where there is no usable one.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(<[u8; 32]>::try_from(bytes).ok().map(Self::of)),
            Err(error) if crate::paths::is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the key at `path`, or makes one. Of two processes that make one at once, both get the same.
    pub(super) fn read_or_make(path: &Path) -> io::Result<Self> {
        if let Some(key) = Self::read(path)? {
            return Ok(key);
        }
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()))?;
        let own = Self::of(key);
        match own.written_beside(path)?.persist_noclobber(path) {
            Ok(_) => Ok(own),
            Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => match Self::read(path)? {
                Some(key) => Ok(key),
                // A damaged one opens nothing any more.
                None => failed.file.persist(path).map(|_| own).map_err(|failed| failed.error),
            },
            Err(failed) => Err(failed.error),
        }
    }

    /// Puts it back where it was deleted: without it, nothing that it seals can be read.
    pub(super) fn put_back(&self, path: &Path) -> io::Result<()> {
        if path.exists() {
            return Ok(());
        }
        match self.written_beside(path)?.persist_noclobber(path) {
            Err(failed) if failed.error.kind() != io::ErrorKind::AlreadyExists => Err(failed.error),
            _ => Ok(()),
        }
    }

    /// A file that is 0600 from the first moment: it appears under its name complete or not at all.
    fn written_beside(&self, path: &Path) -> io::Result<tempfile::NamedTempFile> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
        file.write_all(&self.key)?;
        file.as_file().sync_all()?;
        Ok(file)
    }

    /// Tells files of this key from others.
    pub(super) fn id(&self) -> [u8; 8] {
        self.id
    }

    pub(super) fn hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.key)
    }
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_make_a_key_at_once_get_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        assert!(SealKey::read(&path).unwrap().is_none());
        let make = || SealKey::read_or_make(&path).unwrap().key;
        let keys: Vec<_> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        assert_eq!(SealKey::read(&path).unwrap().unwrap().key, keys[0]);
    }

    #[test]
    fn a_damaged_key_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, b"short").unwrap();
        let key = SealKey::read_or_make(&path).unwrap().key;
        assert_eq!(SealKey::read(&path).unwrap().unwrap().key, key);
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        SealKey::read_or_make(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
