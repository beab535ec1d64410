//! Drafts in a talk: who drafts, and what is said of it.

use super::super::draft::Preload;
use super::Talk;
use crate::cli::DrafterKind;
use crate::commands::free_memory;
use crate::error::Result;
use crate::generate::Answer;
use crate::models::{DraftWish, Needs};

/// Rounds of an answer after which a draft model that was not used is said to be off.
const ENOUGH_TO_TELL: usize = 64;

impl Talk<'_> {
    /// Says once when drafts are not possible, and once when the draft model does not pay.
    pub(super) fn tell_drafts(&mut self, answer: &Answer) {
        let Some(own) = &answer.speculation else { return };
        if own.lost.is_some() {
            self.loaded.drafting.draft = None;
        }
        if let Some(why) = own.blocked.filter(|_| self.blocked.is_none()) {
            self.say(&format!("no drafts: {why}"));
            self.blocked = Some(why);
        }
        if own.model_spared() >= ENOUGH_TO_TELL && !self.told_spared {
            self.say("(the draft model does not pay here and is off for now; /stats has the figures)");
            self.told_spared = true;
        }
    }

    /// Another draft for the model that talks; what was read stays.
    pub(super) fn draft(&mut self, wish: DraftWish) -> Result<()> {
        let first = self.loaded.speaker.session().n_ctx();
        // The target has its part already.
        let own = Needs::of(&self.loaded.resolved).map_or(0, |needs| needs.at(first));
        let free = free_memory().map(|free| free + own);
        let draft = self.loader.draft_for(&self.loaded.resolved, &wish, first, free)?;
        let (own, mut drafting) =
            self.loader.speculator(&self.loaded.resolved, draft, &wish, &self.loaded.way, Preload::Now);
        self.loaded.speaker.session_mut().speculate(own);
        if let Some(caching) = &mut self.loaded.caching {
            caching.drafts(drafting.owner.take());
        }
        self.loaded.drafting = drafting;
        self.wish = wish;
        self.told_spared = false;
        self.reply(&self.drafters());
        Ok(())
    }

    /// Who drafts, in words.
    pub(super) fn drafters(&self) -> String {
        let may = |kind| self.loader.settings.drafters.contains(&kind);
        let ngrams = may(DrafterKind::Ngram);
        match (&self.wish, &self.loaded.drafting.draft) {
            _ if self.blocked.is_some() => format!("no drafts: {}", self.blocked.unwrap_or_default()),
            (DraftWish::Off, _) => "drafts are off".into(),
            (_, Some(model)) if ngrams => format!("{model} drafts where that pays, and n-grams do"),
            (_, Some(model)) => format!("{model} drafts where that pays"),
            (_, None) if !may(DrafterKind::Model) => "n-grams draft where that pays".into(),
            (_, None) if ngrams => "n-grams draft where that pays; no draft model fits".into(),
            (_, None) => "nobody drafts: no draft model fits".into(),
        }
    }
}
