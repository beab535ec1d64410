//! Keeping the store within its bounds: by size and by age, the least recently used leaves first, so that the longest
//! shared prefixes live longest. One process at a time; others leave it to that one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::about::About;
use super::key::Name;
use super::layout::FileName;

/// How large and how old the store may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// In bytes; `None` is the smaller of 8 GiB and a tenth of the disk's free space, the store's own not counted as used.
    pub max_size: Option<u64>,
    pub max_age: Duration,
}

/// 30 days.
pub const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
const MOST: u64 = 8 << 30;
/// Age is looked at this often.
const SWEEP: Duration = Duration::from_secs(24 * 3600);
/// A temporary file this old belongs to nobody any more.
const STALE: Duration = Duration::from_secs(3600);

impl Default for Bounds {
    fn default() -> Self {
        Self { max_size: None, max_age: MAX_AGE }
    }
}

impl Bounds {
    /// The size for a store of `used` bytes in `root`.
    pub fn size(&self, root: &Path, used: u64) -> u64 {
        self.max_size.unwrap_or_else(|| {
            let free = fs4::available_space(root).unwrap_or(u64::MAX / 2);
            MOST.min(free.saturating_add(used) / 10)
        })
    }
}

/// A block's file, as the folders tell.
#[derive(Clone, Debug)]
pub struct Found {
    pub path: PathBuf,
    pub state: Name,
    pub parent: Name,
    pub name: Name,
    pub bytes: u64,
    pub used: SystemTime,
}

/// Everything in a store.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    pub found: Vec<Found>,
    pub about: BTreeMap<Name, About>,
    /// Temporary files that were left behind.
    stale: Vec<PathBuf>,
}

impl Inventory {
    /// Lists the store in `root`; what is not there is empty.
    pub fn of(root: &Path) -> Self {
        let mut own = Self::default();
        own.note_stale(root);
        for (state_folder, text) in folders(root) {
            let Some(state) = Name::parse(&text) else { continue };
            if let Some(about) = About::read(root, state) {
                own.about.insert(state, about);
            }
            own.note_stale(&state_folder);
            for (folder, text) in folders(&state_folder) {
                let Some(parent) = Name::parse(&text) else { continue };
                own.list(&folder, state, parent);
            }
        }
        own
    }

    fn list(&mut self, folder: &Path, state: Name, parent: Name) {
        self.note_stale(folder);
        for file in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Some(FileName { name, .. }) = file.file_name().to_str().and_then(FileName::parse) else { continue };
            let Ok(meta) = file.metadata() else { continue };
            self.found.push(Found {
                path: file.path(),
                state,
                parent,
                name,
                bytes: meta.len(),
                used: meta.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            });
        }
    }

    fn note_stale(&mut self, folder: &Path) {
        for file in fs::read_dir(folder).into_iter().flatten().flatten() {
            let temporary = file.file_name().to_str().is_some_and(|name| name.starts_with(".new-"));
            let modified = || file.metadata().and_then(|meta| meta.modified());
            if temporary && modified().is_ok_and(|at| age(at) > STALE) {
                self.stale.push(file.path());
            }
        }
    }

    /// All blocks that lead to these ends, each a block and the one before it: a last block that was evicted, or went into a
    /// longer one, leaves those before it.
    pub fn leading_to(&self, ends: impl Iterator<Item = [Name; 2]>) -> BTreeSet<Name> {
        let by_name: HashMap<Name, &Found> = self.found.iter().map(|found| (found.name, found)).collect();
        let mut names = BTreeSet::new();
        for start in ends.flatten() {
            let mut at = Some(start);
            while let Some(found) = at.and_then(|name| by_name.get(&name)) {
                at = names.insert(found.name).then_some(found.parent);
            }
        }
        names
    }

    pub fn bytes(&self) -> u64 {
        self.found.iter().map(|own| own.bytes).sum()
    }
}

/// A clock that went back makes nothing old.
fn age(at: SystemTime) -> Duration {
    SystemTime::now().duration_since(at).unwrap_or_default()
}

fn folders(path: &Path) -> Vec<(PathBuf, String)> {
    let folder = |entry: fs::DirEntry| {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        Some((entry.path(), entry.file_name().into_string().ok()?)).filter(|_| is_folder)
    };
    fs::read_dir(path).into_iter().flatten().flatten().filter_map(folder).collect()
}

/// What is to go.
#[derive(Clone, Debug, Default)]
pub struct Prune {
    /// Bytes that may stay.
    pub max_size: Option<u64>,
    /// What was not used for longer goes.
    pub max_age: Option<Duration>,
    /// Only this model's.
    pub state: Option<BTreeSet<Name>>,
    /// Exactly these, where nothing follows them.
    pub exactly: Option<BTreeSet<Name>>,
}

/// What went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub files: usize,
    pub bytes: u64,
    /// Bytes that stay.
    pub left: u64,
}

/// Evicts leaves, the least recently used first, until what is left is within the bounds. None where another process is at
/// it.
///
/// # Errors
/// When the store cannot be changed.
pub fn prune(root: &Path, prune: &Prune) -> io::Result<Option<Pruned>> {
    if !root.exists() {
        return Ok(Some(Pruned::default()));
    }
    let Some(_lock) = Lock::take(root)? else { return Ok(None) };
    let own = Inventory::of(root);
    for path in &own.stale {
        let _ = fs::remove_file(path);
    }
    let mut pruned = Pruned { left: own.bytes(), ..Pruned::default() };
    // Blocks that follow a block, by its name.
    let mut children: HashMap<Name, usize> = HashMap::new();
    let mut by_name: HashMap<Name, usize> = HashMap::new();
    for (index, found) in own.found.iter().enumerate() {
        *children.entry(found.parent).or_default() += 1;
        by_name.insert(found.name, index);
    }
    let key = |index: usize| (own.found[index].used, own.found[index].name, index);
    let is_leaf = |children: &HashMap<Name, usize>, index: &usize| {
        children.get(&own.found[*index].name).is_none_or(|count| *count == 0)
    };
    let mut leaves: BTreeSet<_> = (0..own.found.len()).filter(|index| is_leaf(&children, index)).map(key).collect();
    while let Some((_, _, index)) = leaves.pop_first() {
        let found = &own.found[index];
        let asked = prune.state.as_ref().is_none_or(|state| state.contains(&found.state))
            && prune.exactly.as_ref().is_none_or(|exactly| exactly.contains(&found.name));
        let too_much = prune.max_size.is_some_and(|most| pruned.left > most);
        let too_old = prune.max_age.is_some_and(|most| age(found.used) > most);
        if !asked || !(too_much || too_old) {
            continue;
        }
        match fs::remove_file(&found.path) {
            Ok(()) => pruned.files += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        pruned.bytes += found.bytes;
        pruned.left -= found.bytes;
        // Only an empty one goes; a writer that needs it makes it again.
        let _ = found.path.parent().map(fs::remove_dir);
        if let Some(count) = children.get_mut(&found.parent) {
            *count -= 1;
            if let Some(parent) = by_name.get(&found.parent).filter(|parent| is_leaf(&children, parent)) {
                leaves.insert(key(*parent));
            }
        }
    }
    // What belongs to no block any more; a process that ended early leaves empty folders.
    for (folder, _) in folders(root).into_iter().filter(|(_, text)| Name::parse(text).is_some()) {
        for (folder, _) in folders(&folder) {
            let _ = fs::remove_dir(folder);
        }
        if folders(&folder).is_empty() {
            let _ = fs::remove_file(folder.join("about.json"));
            let _ = fs::remove_dir(&folder);
        }
    }
    let _ = Estimate { bytes: pruned.left, swept: Some(SystemTime::now()) }.write(root);
    Ok(Some(pruned))
}

/// The right to evict.
struct Lock(fs::File);

impl Lock {
    /// None where another process has it.
    fn take(root: &Path) -> io::Result<Option<Self>> {
        let file = super::layout::private_file().truncate(false).open(root.join("lock"))?;
        Ok(file.try_lock().is_ok().then_some(Self(file)))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Not left to the closing: a process that is being started has the file open for a moment too.
        let _ = self.0.unlock();
    }
}

/// About how much there is, so that not every process has to look.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Estimate {
    bytes: u64,
    /// When age was last looked at.
    swept: Option<SystemTime>,
}

impl Estimate {
    fn read(root: &Path) -> Self {
        let text = fs::read_to_string(root.join("usage.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn write(&self, root: &Path) -> io::Result<()> {
        crate::paths::replace(&root.join("usage.json"), &serde_json::to_vec(self)?)
    }
}

/// After so many bytes were written: evicts where that is due. Trouble is left to the next one.
pub(super) fn after_writing(root: &Path, bounds: &Bounds, written: u64) {
    let mut usage = Estimate::read(root);
    usage.bytes = usage.bytes.saturating_add(written);
    let most = bounds.size(root, usage.bytes);
    let due = usage.swept.is_none_or(|at| age(at) > SWEEP || at > SystemTime::now());
    if usage.bytes > most || due {
        // A tenth more than needed goes, so that not every answer evicts.
        let max_size = Some(if usage.bytes > most { most / 10 * 9 } else { most });
        if let Ok(Some(_)) = prune(root, &Prune { max_size, max_age: Some(bounds.max_age), ..Prune::default() }) {
            return;
        }
    }
    let _ = usage.write(root);
}
