//! The prefix cache of a run: whose files these are, when something is saved, what is said of it.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::load::{Loaded, Loader};
use crate::generate::draft::Source;
use crate::generate::{Answer, Cached, Content};
use crate::interrupt::Interrupt;
use crate::models::{Identity, Resolved};
use crate::paths::Paths;
use crate::prefix::Store;

/// Whose states are saved: a model's files and their digest, once it is known.
pub(super) struct Owner {
    files: Option<Identity>,
    pub(super) content: Content,
}

impl Owner {
    /// Of a model that is about to be loaded.
    pub(super) fn of(model: &Resolved, paths: &Paths) -> Self {
        let files = Identity::of(model);
        let content = Content::default();
        if let Some(known) = files.as_ref().and_then(|files| files.known(&paths.identities())) {
            let _ = content.set(known);
        }
        Self { files, content }
    }

    /// Finds the digest out, which takes a second for a few gigabytes.
    fn find_out(&self, paths: &Paths, interrupt: &Interrupt) {
        if self.content.get().is_none()
            && let Some(content) = self.files.as_ref().and_then(|files| files.find_out(&paths.identities(), interrupt))
        {
            let _ = self.content.set(content);
        }
    }
}

/// The prefix cache of one loaded pair of models.
pub(super) struct Caching {
    store: Arc<Store>,
    target: Arc<Owner>,
    draft: Option<Arc<Owner>>,
    /// Digests that are being found out.
    finding: Option<JoinHandle<()>>,
}

impl Loader<'_> {
    /// The prefix cache for a model.
    pub(super) fn cached(&self, model: &Resolved) -> Option<(Cached, Arc<Owner>)> {
        let store = Arc::clone(self.store.as_ref()?);
        let owner = Arc::new(Owner::of(model, &self.settings.paths));
        Some((Cached::new(store, model.name.clone(), Arc::clone(&owner.content)), owner))
    }

    pub(super) fn caching(&self, target: Arc<Owner>, draft: Option<Arc<Owner>>) -> Option<Caching> {
        let store = Arc::clone(self.store.as_ref()?);
        Some(Caching { store, target, draft, finding: None })
    }

    /// Saves what was read for an answer that has been shown, and says what the prefix cache had to say.
    pub(super) fn save(&self, loaded: &mut Loaded, answer: &Answer, when: When) {
        let Some(caching) = &mut loaded.caching else { return };
        let by = answer.speculation.iter().flat_map(|own| &own.by_drafter);
        let drafted = by.into_iter().any(|(source, stats)| *source == Source::Model && stats.rounds > 0);
        caching.identify(self, drafted, when);
        let saved = loaded.speaker.session_mut().save(answer);
        if saved.tokens > 0 {
            let ms = saved.time.as_secs_f64() * 1e3;
            self.terminal.detail(&format!("prefix cache: saved {} tokens ({ms:.1} ms)", saved.tokens));
        }
        caching.end(self, when);
    }
}

/// The prefix cache where many answers share a context and save what they share themselves.
pub(super) struct Shelf {
    caching: Option<Caching>,
    pub(super) cached: Option<Cached>,
}

impl Shelf {
    /// Takes it from a model that answers nothing by itself any more.
    pub(super) fn of(loader: &Loader, loaded: &mut Loaded) -> Self {
        let mut caching = loaded.caching.take();
        if let Some(caching) = &mut caching {
            caching.identify(loader, false, When::Later);
        }
        Self { caching, cached: loaded.speaker.session_mut().take_cached() }
    }

    /// Waits until all is on disk.
    pub(super) fn close(self, loader: &Loader) {
        if let Some(mut caching) = self.caching {
            caching.identify(loader, false, When::AtOnce);
            caching.end(loader, When::AtOnce);
        }
    }
}

/// How long saving may keep its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Until it is done: the process ends.
    AtOnce,
    /// No longer than a copy takes: the next question may come.
    Later,
}

impl Caching {
    /// Another draft, or none.
    pub(super) fn drafts(&mut self, owner: Option<Arc<Owner>>) {
        self.draft = owner;
    }

    /// Finds out whose files these are: the draft's only once it has drafted, since its files are read for that.
    fn identify(&mut self, loader: &Loader, drafted: bool, when: When) {
        if self.finding.as_ref().is_some_and(|finding| finding.is_finished() || when == When::AtOnce) {
            let _ = self.finding.take().map(JoinHandle::join);
        }
        let owners = [&self.target].into_iter().chain(self.draft.as_ref().filter(|_| drafted));
        let unknown: Vec<_> = owners.filter(|own| own.content.get().is_none()).cloned().collect();
        if unknown.is_empty() || self.finding.is_some() {
            return;
        }
        let (paths, interrupt) = (loader.settings.paths.clone(), loader.interrupt.clone());
        let find = move || unknown.iter().for_each(|owner| owner.find_out(&paths, &interrupt));
        match when {
            When::AtOnce => find(),
            When::Later => self.finding = Some(std::thread::spawn(find)),
        }
    }

    /// Says what the prefix cache had to say, at once only when all is on disk.
    fn end(&self, loader: &Loader, when: When) {
        if when == When::AtOnce {
            self.store.flush();
        }
        if let Some(trouble) = self.store.take_trouble() {
            loader.terminal.warn(&trouble);
        }
    }
}
