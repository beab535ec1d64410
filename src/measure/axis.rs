//! What is compared, and the settings that this makes of one.

use std::str::FromStr;

use super::arm::Setting;
use super::distinct;
use super::drafting::Drafting;
use crate::engine::KvType;
use crate::words::count;

/// One way in which arms differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Axis {
    Draft(Vec<Drafting>),
    /// A document that is not in the prefix cache, and one that is.
    Cache,
    Threads(Vec<usize>),
    FlashAttention,
    Kv(Vec<KvType>),
    Repack,
}

const NAMES: &str = "draft, cache, threads, flash-attention, kv, repack";

impl FromStr for Axis {
    type Err = String;

    /// `AXIS` or `AXIS=VALUE,VALUE`; without values they are chosen by [`Axis::settings`].
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, values) = text.split_once('=').map_or((text, None), |(name, values)| (name, Some(values)));
        let none = |axis| match values {
            None => Ok(axis),
            Some(_) => Err(format!("{name} takes no values")),
        };
        match name {
            "draft" => Ok(Self::Draft(list(values, str::parse)?)),
            "cache" => none(Self::Cache),
            "threads" => Ok(Self::Threads(list(values, |word| match word.parse() {
                Ok(count @ 1..=512) => Ok(count),
                _ => Err(format!("'{word}' is no number of threads from 1 to 512")),
            })?)),
            "flash-attention" => none(Self::FlashAttention),
            "kv" => Ok(Self::Kv(list(values, |word| {
                let of_name = |kv: &KvType| kv.name() == word;
                KvType::ALL.into_iter().find(of_name).ok_or_else(|| format!("'{word}' is none of f16, q8_0, q4_0"))
            })?)),
            "repack" => none(Self::Repack),
            _ => Err(format!("'{name}' cannot be compared; these can: {NAMES}")),
        }
    }
}

/// Different values.
fn list<T: PartialEq>(values: Option<&str>, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let words = values.into_iter().flat_map(|values| values.split(','));
    words.map(parse).collect::<Result<Vec<T>, String>>().map(distinct)
}

impl Axis {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Draft(_) => "draft",
            Self::Cache => "cache",
            Self::Threads(_) => "threads",
            Self::FlashAttention => "flash-attention",
            Self::Kv(_) => "kv",
            Self::Repack => "repack",
        }
    }

    /// Whether answers may become worse along it.
    pub fn changes_answers(&self) -> bool {
        matches!(self, Self::Kv(_) | Self::FlashAttention)
    }

    /// The settings to compare, the first one being what others are compared with; `has_draft`: there is a draft model.
    /// Without values the usual few, or with `full` all that make sense.
    pub fn settings(&self, base: &Setting, has_draft: bool, logical_cores: usize, full: bool) -> Vec<Setting> {
        let named = |name: String, change: &dyn Fn(&mut Setting)| {
            let mut setting = Setting { name, ..base.clone() };
            change(&mut setting);
            setting
        };
        match self {
            Self::Draft(values) => {
                let values = if values.is_empty() { usual_drafts(has_draft, full) } else { values.clone() };
                values.into_iter().map(|own| named(own.to_string(), &|s| s.drafting = own)).collect()
            }
            Self::Cache => {
                [("cold", false), ("warm", true)].map(|(name, warm)| named(name.into(), &|s| s.warm = warm)).into()
            }
            Self::Threads(values) => {
                let usual = || distinct([base.threads, 1, base.threads.div_ceil(2), logical_cores]);
                let values = if values.is_empty() { usual() } else { values.clone() };
                let of = |threads: usize| named(count(threads, "thread"), &|s| s.threads = threads);
                values.into_iter().map(of).collect()
            }
            Self::FlashAttention => [("flash attention", true), ("without", false)]
                .map(|(name, flash)| named(name.into(), &|s| s.layout.flash_attention = flash))
                .into(),
            Self::Kv(values) => {
                let values = if values.is_empty() { KvType::ALL.to_vec() } else { values.clone() };
                values.into_iter().map(|kv| named(kv.name().into(), &|s| s.layout.kv = kv)).collect()
            }
            Self::Repack => [("as stored", false), ("repacked", true)]
                .map(|(name, own)| named(name.into(), &|s| s.repack = own))
                .into(),
        }
    }
}

fn usual_drafts(has_draft: bool, full: bool) -> Vec<Drafting> {
    let models = if full { 1..=8 } else { 3..=3 };
    let ngrams: &[usize] = if full {
        &[3, 7, 15]
    } else if has_draft {
        &[7]
    } else {
        &[3, 7]
    };
    let mut all = vec![Drafting::Off];
    all.extend(models.filter(|_| has_draft).map(Drafting::Model));
    all.extend(ngrams.iter().map(|length| Drafting::Ngram(*length)));
    all.extend((full && has_draft).then_some(Drafting::Both));
    all.push(Drafting::Policy);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::KvLayout;

    fn names(axis: &str, has_draft: bool, full: bool) -> Vec<String> {
        let base = Setting {
            name: String::new(),
            drafting: Drafting::Off,
            threads: 4,
            layout: KvLayout::default(),
            repack: true,
            warm: false,
        };
        let settings = axis.parse::<Axis>().unwrap().settings(&base, has_draft, 8, full);
        settings.into_iter().map(|setting| setting.name).collect()
    }

    #[test]
    fn an_axis_makes_settings_that_differ() {
        assert_eq!(names("draft", true, false), ["off", "model3", "ngram7", "policy"]);
        assert_eq!(names("draft", false, false), ["off", "ngram3", "ngram7", "policy"]);
        assert_eq!(names("draft", true, true).len(), 14);
        assert_eq!(names("draft=off,twice3,off", true, false), ["off", "twice3"]);
        assert_eq!(names("threads", true, false), ["4 threads", "1 thread", "2 threads", "8 threads"]);
        assert_eq!(names("threads=2,3", true, false), ["2 threads", "3 threads"]);
        assert_eq!(names("cache", true, false), ["cold", "warm"]);
        assert_eq!(names("kv=f16,q4_0", true, false), ["f16", "q4_0"]);
    }

    #[test]
    fn what_cannot_be_compared_is_said() {
        for (axis, says) in [
            ("speed", "these can: draft"),
            ("cache=1", "takes no values"),
            ("threads=0", "from 1 to 512"),
            ("kv=f32", "none of f16"),
            ("draft=model", "none of off"),
        ] {
            let error = axis.parse::<Axis>().unwrap_err();
            assert!(error.contains(says), "{axis}: {error}");
        }
    }
}
